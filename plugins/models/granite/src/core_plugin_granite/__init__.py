"""Granite decoders, dense and with experts."""
