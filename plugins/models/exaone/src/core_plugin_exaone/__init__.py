"""EXAONE 3 and 4 dense decoders."""
