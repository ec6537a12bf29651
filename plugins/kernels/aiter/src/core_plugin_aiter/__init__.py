"""Paged attention and products by AITER."""
