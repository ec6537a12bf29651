"""BLOOM decoders."""
