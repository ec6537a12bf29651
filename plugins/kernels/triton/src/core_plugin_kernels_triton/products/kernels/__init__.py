"""The kernels of products."""
