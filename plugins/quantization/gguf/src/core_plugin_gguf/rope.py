"""Rotary scaling from GGUF metadata, with Hugging Face's parameter names."""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING, Any

from gguf.constants import GGMLQuantizationType

from core_plugin_gguf.architecture import ROPE_FACTORS, ROPE_FREQUENCIES
from core_plugin_gguf.faults import damaged, unsupported

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from core_plugin_gguf.header import Header, TensorInfo

_YARN = {
    "yarn_attn_factor": "attention_factor",
    "attn_factor": "attention_factor",
    "yarn_beta_fast": "beta_fast",
    "yarn_beta_slow": "beta_slow",
}
_TOLERANCE = 1e-3


def rope_scaling(header: Header, arch: str, tensors: Mapping[str, TensorInfo], rotary: int) -> dict[str, Any] | None:
    """Return the `rope_scaling` of a configuration, or None for plain rotary embeddings.

    Raises:
        CheckpointError: `CORE-M140`: the file scales in a way that has no name here.
    """
    if ROPE_FREQUENCIES in tensors:
        return _llama3(header, arch, tensors[ROPE_FREQUENCIES], rotary)
    if ROPE_FACTORS[0] in tensors:
        return _long(header, arch, tensors)
    prefix = f"{arch}.rope.scaling"
    factor = header.number(f"{prefix}.factor") or header.number(f"{arch}.rope.scale_linear") or 1.0
    kind = header.text(f"{prefix}.type", "linear")
    if kind == "none" or factor == 1:
        return None
    if not 0 < factor < math.inf:
        raise damaged(header.path, f"the factor of rotary scaling is {factor}")
    if kind == "linear":
        return {"rope_type": "linear", "factor": factor}
    if kind != "yarn":
        raise unsupported(
            header.path, f"rotary scaling {kind} is not supported", "Supported: linear, yarn, longrope, llama3."
        )
    scaling: dict[str, Any] = {"rope_type": "yarn", "factor": factor}
    original = header.integer(f"{prefix}.original_context_length")
    if original:
        scaling["original_max_position_embeddings"] = original
    for key, name in _YARN.items():
        value = header.number(f"{prefix}.{key}")
        if value is not None:
            scaling[name] = value
    return scaling


def _long(header: Header, arch: str, tensors: Mapping[str, TensorInfo]) -> dict[str, Any]:
    """Return the rule of contexts for which each frequency has a divisor of its own, below and beyond the original."""
    for name in ROPE_FACTORS:
        if name not in tensors:
            raise damaged(header.path, f"tensor {name} is missing")
    short, long = (_divisors(header, tensors[name]) for name in ROPE_FACTORS)
    prefix = f"{arch}.rope.scaling"
    scaling = {
        "rope_type": "longrope",
        "short_factor": short,
        "long_factor": long,
        "original_max_position_embeddings": header.positive_integer(f"{prefix}.original_context_length"),
    }
    attention = header.number(f"{prefix}.attn_factor")
    return scaling if attention is None else {**scaling, "attention_factor": attention}


def _divisors(header: Header, tensor: TensorInfo) -> list[float]:
    if tensor.kind != GGMLQuantizationType.F32:
        raise damaged(header.path, f"{tensor.name} has type {tensor.kind.name}, not F32")
    divisors = struct.unpack_from(f"<{tensor.num_bytes // 4}f", header.data, tensor.offset)
    if not all(0 < divisor < math.inf for divisor in divisors):
        raise damaged(header.path, f"{tensor.name} holds values that are no divisors")
    return list(divisors)


def _llama3(header: Header, arch: str, tensor: TensorInfo, rotary: int) -> dict[str, Any] | None:
    """Recover Llama 3's rule from the divisors that it produced."""
    divisors = _divisors(header, tensor)
    count = len(divisors)
    theta = header.positive_number(f"{arch}.rope.freq_base", 10000.0)
    frequencies = [theta ** (-index / count) for index in range(count)]
    factor = max(divisors)
    if all(abs(divisor - 1) < _TOLERANCE for divisor in divisors):
        return None
    for low, high, original in (_fit(frequencies, divisors, factor), (1.0, 4.0, 8192)):
        rule = {
            "factor": factor,
            "low_freq_factor": low,
            "high_freq_factor": high,
            "original_max_position_embeddings": original,
        }
        if original > 0 and high > low and _matches(frequencies, divisors, rule):
            return {"rope_type": "llama3", **rule}
    if 2 * count != rotary:
        raise damaged(header.path, f"{tensor.name} has {count} divisors for {rotary} dimensions")
    # What follows no rule known here can still be said one by one.
    given = list(divisors)
    return {
        "rope_type": "longrope",
        "short_factor": given,
        "long_factor": given,
        "factor": 1.0,
        "attention_factor": 1.0,
        "original_max_position_embeddings": header.positive_integer(f"{arch}.context_length"),
    }


def _fit(frequencies: Sequence[float], divisors: Sequence[float], factor: float) -> tuple[float, float, int]:
    """Solve the rule for its parameters.

    Between the two bounds, `1 / divisor` is a blend whose weight is linear in the frequency: two points give the
    line. Parameters that share a common scale describe the same rule, so the low bound is taken as 1.
    """
    points = [
        (frequency, (1 / divisor - 1 / factor) / (1 - 1 / factor))
        for frequency, divisor in zip(frequencies, divisors, strict=True)
        if 1 + _TOLERANCE < divisor < factor * (1 - _TOLERANCE)
    ]
    if len(points) < 2 or points[0][1] == points[-1][1]:
        return 0.0, 0.0, 0
    (x1, y1), (x2, y2) = points[0], points[-1]
    slope = (y2 - y1) / (x2 - x1)
    intercept = y1 - slope * x1
    if intercept >= 0:
        return 0.0, 0.0, 0
    high = 1 - 1 / intercept
    return 1.0, round(high, 3), round(slope * 2 * math.pi * (high - 1))


def _matches(frequencies: Sequence[float], divisors: Sequence[float], rule: Mapping[str, float]) -> bool:
    low, high, factor = rule["low_freq_factor"], rule["high_freq_factor"], rule["factor"]
    for frequency, divisor in zip(frequencies, divisors, strict=True):
        turns = rule["original_max_position_embeddings"] * frequency / (2 * math.pi)
        weight = min(max((turns - low) / (high - low), 0.0), 1.0)
        if abs(divisor * ((1 - weight) / factor + weight) - 1) > _TOLERANCE:
            return False
    return True
