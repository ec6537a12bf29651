"""Decoders of DeepSeek V2 and V3, and GLM-4-MoE-Lite."""
