"""Jais 2 decoders."""
