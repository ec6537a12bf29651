"""Qwen2-MoE and Qwen3-MoE decoders."""
