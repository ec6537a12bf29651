"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api import AttentionSpec

DTYPES = frozenset({"float32", "bfloat16", "float16"})

EINSUM_PAGED = AttentionSpec(
    name="einsum_paged",
    impl="acme_core_einsum.backend:EinsumBackend",
    api=2,
    summary="Paged attention as two einsums per request; for reading, not for speed",
    band=1,
    maturity="experimental",
    devices=frozenset({"cpu", "cuda", "xpu"}),
    dtypes=DTYPES,
    kv_dtypes=DTYPES,
    features=frozenset({"sliding_window", "softcap"}),
)
