"""Apertus decoders."""
