"""Sampling: from logits to tokens, one noun per file; `sampler` puts them in order."""
