"""Phi 1, 1.5 and 2, Phi-3, Phi-4 and Phi-3.5-MoE decoders."""
