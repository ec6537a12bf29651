"""Orion decoders."""
