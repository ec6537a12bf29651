"""Nemotron dense decoders."""
