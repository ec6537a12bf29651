"""Decoders of DeepSeek-MoE, V2, V3 and V3.2, GLM-4-MoE-Lite and GLM-5."""
