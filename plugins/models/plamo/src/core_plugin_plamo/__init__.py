"""PLaMo 3 dense decoders."""
