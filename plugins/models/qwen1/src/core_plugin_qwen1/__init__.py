"""Qwen decoders of the first generation."""
