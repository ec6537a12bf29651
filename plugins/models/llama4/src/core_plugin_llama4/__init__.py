"""Llama 4 text decoders."""
