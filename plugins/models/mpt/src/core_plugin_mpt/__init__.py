"""MPT decoders."""
