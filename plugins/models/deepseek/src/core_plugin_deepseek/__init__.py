"""Decoders of DeepSeek-MoE, V2, V3, V3.2 and V4, GLM-4-MoE-Lite and GLM-5."""
