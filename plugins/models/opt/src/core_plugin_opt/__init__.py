"""OPT decoders."""
