"""Step-1 dense decoders."""
