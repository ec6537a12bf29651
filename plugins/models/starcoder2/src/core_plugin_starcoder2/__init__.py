"""Starcoder2 decoders."""
