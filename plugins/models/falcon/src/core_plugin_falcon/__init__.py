"""Falcon decoders."""
