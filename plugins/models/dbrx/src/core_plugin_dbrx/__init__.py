"""DBRX decoders."""
