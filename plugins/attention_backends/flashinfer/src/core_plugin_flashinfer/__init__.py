"""Paged attention by FlashInfer."""
