"""ERNIE 4.5 dense decoders."""
