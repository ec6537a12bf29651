"""Grok decoders."""
