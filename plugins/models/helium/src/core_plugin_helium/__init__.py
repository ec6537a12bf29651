"""Helium decoders."""
