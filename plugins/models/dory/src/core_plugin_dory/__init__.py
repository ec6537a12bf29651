"""Dory looped decoders."""
