"""Ouro looped decoders."""
