"""Muse Glimmer text decoders."""
