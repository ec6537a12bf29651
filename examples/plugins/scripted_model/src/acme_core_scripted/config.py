"""The configuration of a scripted checkpoint. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from core.api import CheckpointError, ModelShape

BITS = 16
"""Bits of the codes that stand for tokens and positions: both stay below 2**16."""

LAYERS, HEADS = 2, 2


@dataclass(frozen=True, slots=True)
class ScriptedConfig:
    """Sizes, and the tokens that mark the script in a prompt.

    Attributes:
        begin_id: The script begins behind it; without one, at the prompt's first token.
        end_id: Ends the script and makes the model speak.
        eos_id: What the model says last.
    """

    vocab_size: int
    positions: int
    begin_id: int
    end_id: int
    eos_id: int

    @staticmethod
    def read(config: Mapping[str, Any]) -> ScriptedConfig:
        """Read a configuration. Raises `CheckpointError` ACME-M3 when a value is missing or too large."""
        keys = ("vocab_size", "max_position_embeddings", "begin_token_id", "end_token_id", "eos_token_id")
        values = [config.get(key) for key in keys]
        for key, value in zip(keys, values):
            if not isinstance(value, int) or not 0 <= value < 2**BITS:
                raise CheckpointError("ACME-M3", f"'{key}' must be an integer below {2**BITS}, got {value!r}.")
        return ScriptedConfig(*(int(value) for value in values if value is not None))


def shape(config: dict[str, Any]) -> ModelShape:
    """Return the facts that the engine needs before any weight is read."""
    c = ScriptedConfig.read(config)
    return ModelShape(
        vocab_size=c.vocab_size,
        max_positions=c.positions,
        num_layers=LAYERS,
        hidden_size=BITS,
        num_heads=HEADS,
        num_kv_heads=HEADS,
        head_dim=BITS,
        dtype="float32",
    )
