"""Paged attention by FlashAttention."""
