"""Granite dense decoders."""
