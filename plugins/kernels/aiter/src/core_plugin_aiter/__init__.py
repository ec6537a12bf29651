"""Paged and latent attention, and products, by AITER."""
