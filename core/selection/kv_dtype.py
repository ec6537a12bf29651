"""Facts of a checkpoint about the KV cache."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_SCHEMES = {("float", 8): "float8_e4m3fn", ("int", 8): "int8"}
_ALGORITHMS = {"FP8": "float8_e4m3fn", "INT8": "int8"}


def demanded_kv_dtype(quantization: Mapping[str, Any]) -> str | None:
    """Return the dtype of the KV cache that `quantization_config` asks for, or None.

    It does so in `kv_cache_scheme`, or by a name in `kv_cache_quant_algo`. A scheme of another kind asks for nothing
    that could be had: the cache then keeps the dtype of the model.
    """
    scheme = quantization.get("kv_cache_scheme")
    if not isinstance(scheme, Mapping):
        return _ALGORITHMS.get(str(quantization.get("kv_cache_quant_algo")).upper())
    return _SCHEMES.get((scheme.get("type", "int"), scheme.get("num_bits", 8)))
