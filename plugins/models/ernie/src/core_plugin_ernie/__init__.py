"""ERNIE 4.5 decoders, dense and with experts."""
