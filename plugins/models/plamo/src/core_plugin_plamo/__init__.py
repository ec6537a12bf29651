"""PLaMo 2 and PLaMo 3 decoders."""
