"""Structured output and bounded thinking: rows take only tokens that their grammar or their budget allows."""
