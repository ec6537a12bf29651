"""Causal language models of transformers on core's paged attention."""
