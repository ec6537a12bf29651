"""Torch-free checks of the manifests that ask the native library."""

from __future__ import annotations

from core.api.descriptors import AttentionRequest
from core.api.verdict import ProbeResult, Verdict
from core_plugin_cpu.native import library

MOST_HEAD_DIM = 256
"""Bound of the scratch memory of `csrc/cpu/attention`."""


def attention(request: AttentionRequest, probe: ProbeResult) -> Verdict:
    """Native attention needs the library, and in a paged cache of keys and values heads of whole vectors."""
    encoder = "bidirectional" in request.features
    sizes = [] if {"latent", "compressed"} & request.features else sorted(request.sizes)
    unfit = [dim for dim in sizes if dim > MOST_HEAD_DIM or (dim % 16 and not encoder)]
    return Verdict.of(
        None if library.available() else f"no native library: {library.reason()} ({library.REMEDY})",
        None if not unfit else f"head_dim {unfit[0]} is not a multiple of 16 up to {MOST_HEAD_DIM}",
    )
