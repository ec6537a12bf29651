"""Nanbeige looped decoders."""
