"""Arcee AFM decoders."""
