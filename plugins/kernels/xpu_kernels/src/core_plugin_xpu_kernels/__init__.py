"""Paged attention by vllm-xpu-kernels."""
