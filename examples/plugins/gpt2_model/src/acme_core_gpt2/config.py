"""A GPT-2 configuration with Hugging Face's keys. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from core.api import CheckpointError, ModelShape, config_dtype, config_int, config_number

REFUSED = ("scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn", "add_cross_attention")
"""Switches of the architecture that change the arithmetic and that this model does not have."""


@dataclass(frozen=True, slots=True)
class GPT2Config:
    """What the model needs to build itself."""

    vocab_size: int
    positions: int
    hidden_size: int
    inner_size: int
    num_layers: int
    num_heads: int
    norm_eps: float
    activation: str
    scaled: bool
    tied: bool

    @staticmethod
    def read(config: Mapping[str, Any]) -> GPT2Config:
        """Read a configuration.

        Raises:
            CheckpointError: CORE-M126, a size is missing; ACME-M1, sizes do not fit each other; ACME-M2, a switch this
                model does not have is on.
        """
        refused = [key for key in REFUSED if config.get(key)]
        if refused:
            raise CheckpointError("ACME-M2", f"this GPT-2 does not implement {', '.join(refused)}.")
        hidden, heads = config_int(config, "n_embd"), config_int(config, "n_head")
        if hidden % heads:
            raise CheckpointError("ACME-M1", f"{hidden} hidden dimensions do not divide into {heads} heads.")
        return GPT2Config(
            vocab_size=config_int(config, "vocab_size"),
            positions=config_int(config, "n_positions"),
            hidden_size=hidden,
            inner_size=config_int(config, "n_inner", 4 * hidden),
            num_layers=config_int(config, "n_layer"),
            num_heads=heads,
            norm_eps=config_number(config, "layer_norm_epsilon", 1e-5),
            activation=str(config.get("activation_function", "gelu_new")),
            scaled=bool(config.get("scale_attn_weights", True)),
            tied=bool(config.get("tie_word_embeddings", True)),
        )

    @property
    def head_dim(self) -> int:
        """Dimensions of one head."""
        return self.hidden_size // self.num_heads


def shape(config: dict[str, Any]) -> ModelShape:
    """Return the facts that the engine needs before any weight is read."""
    c = GPT2Config.read(config)
    return ModelShape(
        vocab_size=c.vocab_size,
        max_positions=c.positions,
        num_layers=c.num_layers,
        hidden_size=c.hidden_size,
        num_heads=c.num_heads,
        num_kv_heads=c.num_heads,
        head_dim=c.head_dim,
        dtype=config_dtype(config, "float32"),
    )
