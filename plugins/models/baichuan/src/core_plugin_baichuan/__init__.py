"""Baichuan decoders."""
