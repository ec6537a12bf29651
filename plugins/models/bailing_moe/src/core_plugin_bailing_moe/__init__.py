"""Ling decoders (Bailing MoE)."""
