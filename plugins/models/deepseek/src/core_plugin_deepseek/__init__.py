"""Decoders of DeepSeek-MoE, V2 and V3, and GLM-4-MoE-Lite."""
