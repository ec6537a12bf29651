"""Beam search: the search itself, and how it runs on ordinary requests, offline and beside others."""
