"""Kernels of the native library, called through ctypes; each has a torch form in core to fall back to."""
