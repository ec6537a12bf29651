"""Persimmon decoders."""
