"""MiniMax-Text-01 and MiniMax-M1 as they were published: other keys, another rule for slopes. Torch-free.

Tensors have the names that transformers' checkpoints have as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core_plugin_decoder import FULL, Fields, alibi_slopes

from core.api import CheckpointError, config_architecture

LINEAR = "linear_attention"

_ARCHITECTURES = ("MiniMaxText01ForCausalLM", "MiniMaxM1ForCausalLM")
_PARTS = {"linear_attention": "linear_attn", "full_attention": "full_attn", "mlp": "mlp"}
"""Parts of a layer in the names of the factors -> in transformers'."""


def published(config: Mapping[str, Any]) -> bool:
    """Whether a configuration has the keys of the published code."""
    return config_architecture(config, "") in _ARCHITECTURES


def translated(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a published configuration with transformers' keys.

    Raises:
        CheckpointError: CORE-M126, it asks for what was never published, or lacks the kinds of its layers.
    """
    given = Fields(config)
    kinds = given.flags("attn_type_list", given.layers())
    if kinds is None:
        raise CheckpointError("CORE-M126", "'attn_type_list' is missing: it says which layers attend to all tokens.")
    if not given.flag("postnorm"):
        raise CheckpointError("CORE-M126", "'postnorm' must be true: others have residuals that no norm has gone over.")
    shared = config.get("shared_intermediate_size")
    if any(shared) if isinstance(shared, list) else shared:
        raise CheckpointError("CORE-M126", f"'shared_intermediate_size' is {shared!r:.60}, which is not supported.")
    found = {**config, "layer_types": [FULL if full else LINEAR for full in kinds]}
    for part, name in _PARTS.items():
        for factor in ("alpha", "beta"):
            found[f"{name}_{factor}_factor"] = given.number(f"layernorm_{part}_{factor}", 1.0)
    if config.get("rotary_dim") is not None:
        size = given.head_dim()
        found["partial_rotary_factor"] = given.integer("rotary_dim", most=size) / size
    return found


def slopes(heads: int, index: int, layers: int) -> tuple[float, ...]:
    """Return the slope of each head: those of ALiBi, flatter in later layers."""
    flatter = 1 - index / max(layers - 1, 1) + 1e-5
    return tuple(slope * flatter for slope in alibi_slopes(heads))
