"""Kernels run in Triton's interpreter, which is chosen when Triton is imported."""

import os

os.environ.setdefault("TRITON_INTERPRET", "1")
