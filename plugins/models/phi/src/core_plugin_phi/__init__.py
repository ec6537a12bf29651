"""Phi 1, 1.5 and 2, Phi-3 and Phi-4 decoders."""
