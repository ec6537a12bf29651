"""Latent attention by FlashMLA."""
