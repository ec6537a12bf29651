"""Rotary position embedding: frequencies, tables, rotation.

The first and the second half of the rotated dimensions form the pairs (the layout of most Hugging Face checkpoints); or
neighbours do (interleaved).
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from core.api.rotary import RopeConfig

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


def rotary_interleaved(positions: Tensor, q: Tensor, k: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
    """Rotate queries and keys by position, where dimensions 2i and 2i + 1 form a pair. Arguments as of `rotary`."""
    size = table.shape[-1] // 2
    cos, _, _, sin = table.index_select(0, positions).unsqueeze(1).chunk(4, dim=-1)

    def turned(x: Tensor) -> Tensor:
        first, second = x[..., :size:2], x[..., 1:size:2]
        pairs = torch.stack((first * cos - second * sin, second * cos + first * sin), dim=-1)
        rotated = pairs.flatten(-2)
        return rotated if size == x.shape[-1] else torch.cat((rotated, x[..., size:]), dim=-1)

    return turned(q), turned(k)


def rotary_table(config: RopeConfig, positions: int, rows: int | None = None) -> Tensor:
    """Return `(rows, 2 * rotary_dim)` float32: what `apply_rotary` takes as cos, then as sin.

    Args:
        positions: Context that the engine is started with, in tokens; some rules' frequencies depend on it.
        rows: Positions that will be used, from the first on; None: all of that context.
    """
    frequencies, factor = inverse_frequencies(config, positions)
    angles = torch.outer(torch.arange(positions if rows is None else rows, dtype=torch.float32), frequencies)
    cos, sin = angles.cos() * factor, angles.sin() * factor
    return torch.cat((cos, cos, -sin, sin), dim=-1)


def inverse_frequencies(config: RopeConfig, context: int | None = None) -> Frequencies:
    """Return `(rotary_dim / 2,)` radians per position, and the factor of cos and sin, by the scaling rule.

    They hold for every position of a context, whatever is in it: so what a KV cache keeps of a token does not change
    when the sequence grows, and equal prefixes have equal keys.

    Args:
        context: Context that the engine is started with, in tokens; None: the original one.

    Raises:
        CheckpointError: CORE-M125 when the rule is unknown or one of its parameters is missing.
    """
    config.require_known()
    return _FORMS[config.rule](config, context or config.original_positions)


def _plain(theta: float, dim: int) -> Tensor:
    return 1.0 / theta ** (torch.arange(0, dim, 2, dtype=torch.float32) / dim)


def _default(config: RopeConfig, context: int) -> Frequencies:
    return _plain(config.theta, config.rotary_dim), 1.0


def _linear(config: RopeConfig, context: int) -> Frequencies:
    return _plain(config.theta, config.rotary_dim) / config.factor, 1.0


def _dynamic(config: RopeConfig, context: int) -> Frequencies:
    """NTK scaling: beyond the original context the base is the one that the longest sequence needs."""
    dim, factor, original = config.rotary_dim, config.factor, config.original_positions
    growth = factor * max(context, original) / original - (factor - 1)
    return _plain(config.theta * growth ** (dim / (dim - 2)), dim), 1.0


def _llama3(config: RopeConfig, context: int) -> Frequencies:
    """Llama 3.1: long waves are slowed down by `factor`, short ones kept, those between blended."""
    plain = _plain(config.theta, config.rotary_dim)
    low, high = config.number("low_freq_factor"), config.number("high_freq_factor")
    turns = config.original_positions * plain / (2 * math.pi)
    keep = ((turns - low) / (high - low)).clamp(0.0, 1.0)
    return (1 - keep) * plain / config.factor + keep * plain, 1.0


def _yarn(config: RopeConfig, context: int) -> Frequencies:
    """YaRN: dimensions that turn often keep their frequency, the others are interpolated, with a ramp between."""
    plain, factor = _plain(config.theta, config.rotary_dim), config.factor
    fast, slow = config.number("beta_fast", 32.0) or 32.0, config.number("beta_slow", 1.0) or 1.0
    low, high = (_turning_dim(config, turns) for turns in (fast, slow))
    if config.scaling.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, config.rotary_dim - 1)
    ramp = (torch.arange(len(plain), dtype=torch.float32) - low) / (high - low if high != low else 0.001)
    interpolated = ramp.clamp(0.0, 1.0)
    return plain / factor * interpolated + plain * (1 - interpolated), _yarn_factor(config)


def _turning_dim(config: RopeConfig, turns: float) -> float:
    """Return the (fractional) index of the pair that turns `turns` times over the original context."""
    length = config.original_positions
    return config.rotary_dim * math.log(length / (turns * 2 * math.pi)) / (2 * math.log(config.theta))


def _yarn_factor(config: RopeConfig) -> float:
    scale, scale_all = config.number("mscale", 0.0), config.number("mscale_all_dim", 0.0)
    usual = _magnitude(config.factor, 1.0)
    if scale and scale_all:
        usual = _magnitude(config.factor, scale) / _magnitude(config.factor, scale_all)
    return config.number("attention_factor", usual)


def _magnitude(factor: float, scale: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * scale * math.log(factor) + 1.0


def _proportional(config: RopeConfig, context: int) -> Frequencies:
    """Gemma 4: the frequencies are those of a whole head, and the slowest pairs do not turn at all."""
    turning = int(config.number("partial_rotary_factor", 1.0) * config.head_dim // 2)
    plain = _plain(config.theta, config.rotary_dim) / config.factor
    plain[turning:] = 0.0
    return plain, 1.0


def _longrope(config: RopeConfig, context: int) -> Frequencies:
    """LongRoPE: a divisor for each pair of dimensions; one list for the original context, one for longer ones."""
    original, factor = config.original_positions, config.factor
    divisors = torch.tensor(config.divisors("long_factor" if context > original else "short_factor"))
    usual = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original))
    return _plain(config.theta, config.rotary_dim) / divisors, config.number("attention_factor", usual)


_FORMS: Mapping[str, Callable[[RopeConfig, int], Frequencies]] = types.MappingProxyType(
    {
        "default": _default,
        "linear": _linear,
        "dynamic": _dynamic,
        "llama3": _llama3,
        "yarn": _yarn,
        "longrope": _longrope,
        "proportional": _proportional,
    }
)
"""How each of `core.api.rotary.RULES` is computed."""
