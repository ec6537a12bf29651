"""Domyn Edge dense decoders."""
