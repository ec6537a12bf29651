"""Nemotron-NAS and DeciLM decoders."""
