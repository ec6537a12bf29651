"""Rotary position embedding: frequencies, tables, rotation.

The first and the second half of the rotated dimensions form the pairs (the layout of Hugging Face checkpoints).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from core.api.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from core.api.models import RopeConfig

    Frequencies = tuple[Tensor, float]


def apply_rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the first `rotary_dim` entries of every head.

    Args:
        x: `(tokens, heads, head_dim)`.
        cos: `(tokens, 1, rotary_dim)`, both halves equal.
        sin: `(tokens, 1, rotary_dim)`, the first half negated, so that `x` needs no negated copy.
    """
    size = cos.shape[-1]
    head = x[..., :size]
    first, second = head.chunk(2, dim=-1)
    rotated = torch.addcmul(head * cos, torch.cat((second, first), dim=-1), sin)
    return rotated if size == x.shape[-1] else torch.cat((rotated, x[..., size:]), dim=-1)


def rotary(positions: Tensor, q: Tensor, k: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
    """Rotate queries and keys by position.

    Args:
        positions: `(tokens,)` int64.
        q, k: `(tokens, heads, head_dim)` and `(tokens, kv_heads, head_dim)`.
        table: What `rotary_table` returns, in any float dtype.
    """
    cos, sin = table.index_select(0, positions).unsqueeze(1).chunk(2, dim=-1)
    return apply_rotary(q, cos, sin), apply_rotary(k, cos, sin)


def rotary_table(config: RopeConfig, positions: int) -> Tensor:
    """Return `(positions, 2 * rotary_dim)` float32: what `apply_rotary` takes as cos, then as sin."""
    angles, factor = _angles(config, torch.arange(positions, dtype=torch.float32))
    cos, sin = angles.cos() * factor, angles.sin() * factor
    return torch.cat((cos, cos, -sin, sin), dim=-1)


def inverse_frequencies(config: RopeConfig) -> Frequencies:
    """Return `(rotary_dim / 2,)` radians per position, and the factor of cos and sin, by the scaling rule.

    `dynamic` gives the frequencies of positions inside the original context.

    Raises:
        CheckpointError: CORE-M125 when the rule is unknown or one of its parameters is missing.
    """
    rule = str(config.scaling.get("rope_type", config.scaling.get("type", "default")))
    if rule not in _RULES:
        known = ", ".join(sorted(_RULES))
        raise CheckpointError("CORE-M125", f"rotary scaling '{rule}' is not supported; supported: {known}.")
    return _RULES[rule](config, _plain(config.theta, config.rotary_dim))


def _angles(config: RopeConfig, positions: Tensor) -> Frequencies:
    if config.scaling.get("rope_type", config.scaling.get("type")) == "dynamic":
        return _dynamic_angles(config, positions), 1.0
    frequencies, factor = inverse_frequencies(config)
    return torch.outer(positions, frequencies), factor


def _dynamic_angles(config: RopeConfig, positions: Tensor) -> Tensor:
    """Return the angles of NTK scaling whose base grows with the sequence.

    The base of a position is that of a sequence which ends there. So a token's rotation depends on nothing but its
    position, whatever is in the batch and however the prompt was cut, as a prefix cache needs it.
    """
    dim, factor = config.rotary_dim, _number(config, "factor")
    length = (positions + 1).clamp(min=config.max_positions)
    growth = factor * length / config.max_positions - (factor - 1)
    base = config.theta * growth ** (dim / (dim - 2))
    exponents = torch.arange(0, dim, 2, dtype=torch.float32) / dim
    return positions[:, None] / base[:, None] ** exponents


def _plain(theta: float, dim: int) -> Tensor:
    return 1.0 / theta ** (torch.arange(0, dim, 2, dtype=torch.float32) / dim)


def _default(config: RopeConfig, plain: Tensor) -> Frequencies:
    return plain, 1.0


def _linear(config: RopeConfig, plain: Tensor) -> Frequencies:
    return plain / _number(config, "factor"), 1.0


def _llama3(config: RopeConfig, plain: Tensor) -> Frequencies:
    """Llama 3.1: long waves are slowed down by `factor`, short ones kept, those between blended."""
    factor, low, high = (_number(config, key) for key in ("factor", "low_freq_factor", "high_freq_factor"))
    turns = _original_length(config) * plain / (2 * math.pi)
    keep = ((turns - low) / (high - low)).clamp(0.0, 1.0)
    return (1 - keep) * plain / factor + keep * plain, 1.0


def _yarn(config: RopeConfig, plain: Tensor) -> Frequencies:
    """YaRN: dimensions that turn often keep their frequency, the others are interpolated, with a ramp between."""
    original = _original_length(config)
    factor = _number(config, "factor", config.max_positions / original)
    fast, slow = _number(config, "beta_fast", 32.0), _number(config, "beta_slow", 1.0)
    low, high = (_turning_dim(config, turns, original) for turns in (fast, slow))
    if config.scaling.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, config.rotary_dim - 1)
    ramp = (torch.arange(len(plain), dtype=torch.float32) - low) / (high - low if high != low else 0.001)
    interpolated = ramp.clamp(0.0, 1.0)
    return plain / factor * interpolated + plain * (1 - interpolated), _yarn_factor(config, factor)


def _turning_dim(config: RopeConfig, turns: float, length: float) -> float:
    """Return the (fractional) index of the pair that turns `turns` times over `length` positions."""
    return config.rotary_dim * math.log(length / (turns * 2 * math.pi)) / (2 * math.log(config.theta))


def _yarn_factor(config: RopeConfig, factor: float) -> float:
    scale, scale_all = _number(config, "mscale", 0.0), _number(config, "mscale_all_dim", 0.0)
    usual = _magnitude(factor, 1.0)
    if scale and scale_all:
        usual = _magnitude(factor, scale) / _magnitude(factor, scale_all)
    return _number(config, "attention_factor", usual)


def _magnitude(factor: float, scale: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * scale * math.log(factor) + 1.0


def _original_length(config: RopeConfig) -> float:
    return _number(config, "original_max_position_embeddings", float(config.max_positions))


def _number(config: RopeConfig, key: str, default: float | None = None) -> float:
    value = config.scaling.get(key, default)
    if not isinstance(value, (int, float)):
        rule = config.scaling.get("rope_type", config.scaling.get("type"))
        raise CheckpointError("CORE-M125", f"rotary scaling '{rule}' needs a number '{key}'; the model says {value!r}.")
    return float(value)


_RULES: dict[str, Callable[[RopeConfig, Tensor], Frequencies]] = {
    "default": _default,
    "linear": _linear,
    "dynamic": _default,
    "llama3": _llama3,
    "yarn": _yarn,
}
