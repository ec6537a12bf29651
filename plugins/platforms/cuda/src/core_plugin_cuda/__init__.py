"""NVIDIA GPUs."""
