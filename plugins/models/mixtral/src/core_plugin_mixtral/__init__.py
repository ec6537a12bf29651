"""Mixtral decoders."""
