"""What the distribution brings. Each part has its descriptors beside it; none imports torch or Triton."""

from __future__ import annotations

from core_plugin_kernels_triton.attention.spec import TRITON

__all__ = ["TRITON"]
