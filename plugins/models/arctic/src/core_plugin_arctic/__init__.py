"""Arctic decoders."""
