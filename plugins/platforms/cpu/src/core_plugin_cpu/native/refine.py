"""What the manifests' torch-free checks ask of the native library."""

from __future__ import annotations

from core.api.descriptors import AttentionRequest
from core.api.verdict import ProbeResult, Verdict
from core_plugin_cpu.native import library


def attention(request: AttentionRequest, probe: ProbeResult) -> Verdict:
    """Native attention needs the library, and a cache of the queries' dtype."""
    return Verdict.of(
        None if library.available() else f"no native library: {library.reason()} ({library.REMEDY})",
        None
        if request.kv_dtype == request.dtype
        else f"kv dtype {request.kv_dtype} differs from dtype {request.dtype}",
        None if request.head_dim % 16 == 0 and request.head_dim <= 256 else f"head_dim {request.head_dim} is not a multiple of 16 up to 256",
    )
