"""Paged and latent attention by FlashInfer."""
