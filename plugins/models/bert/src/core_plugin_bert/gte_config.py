"""A GTE configuration as data, with the keys of its makers or those of transformers. Torch-free."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from core.api import (
    MOST_LAYERS,
    MOST_POSITIONS,
    CheckpointError,
    ModelShape,
    PoolingShape,
    RopeConfig,
    WeightShape,
    config_architecture,
    config_dtype,
    config_heads,
    config_int,
    config_number,
    config_object,
    rope_config,
)
from core_plugin_bert.heads import SEQUENCE, TOKEN, Dense, pooling

_FIXED: Mapping[str, tuple[Any, ...]] = {
    "position_embedding_type": ("rope", None),
    "layer_norm_type": ("layer_norm",),
    "pack_qkv": (True,),
    "logn_attention_scale": (False,),
    "logn_attention_clip1": (False,),
}
"""Settings that the family can vary and this implementation does not: key -> the values that are carried out."""

_THETA, _NEW_THETA = 160_000.0, 10_000.0
"""Base of the rotation where a configuration names none: transformers', and its makers' first."""

_MOST_THETA, _MOST_FACTOR = 1e9, 1e3


@dataclass(frozen=True, slots=True)
class GteConfig:
    """Everything that the model needs to build itself.

    Attributes:
        positions: Longest prompt in tokens.
        type_rows: Rows of the token-type embedding; 0 if there is none.
        head: Layers behind pooling, in order.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    positions: int
    type_rows: int
    norm_eps: float
    activation: str
    rope: RopeConfig
    head: tuple[Dense, ...]
    pooling: PoolingShape

    @property
    def head_dim(self) -> int:
        """Size of an attention head."""
        return self.hidden_size // self.num_heads

    @staticmethod
    def read(config: Mapping[str, Any]) -> GteConfig:
        """Read a configuration.

        Raises:
            CheckpointError: CORE-M126 when a value is missing or is not supported.
        """
        name = config_architecture(config, "GteModel")
        for key, fine in _FIXED.items():
            if config.get(key, fine[0]) not in fine:
                raise CheckpointError("CORE-M126", f"'{key}': {config[key]!r:.40} is not supported, only {fine[0]!r}.")
        hidden, heads = config_int(config, "hidden_size"), config_int(config, "num_attention_heads")
        size, shape = config_heads(config, "hidden_size", "num_attention_heads"), pooling(config, name)
        rope = _rope(config, size, _NEW_THETA if name.startswith(("New", "GteNew")) else _THETA)
        return GteConfig(
            vocab_size=config_int(config, "vocab_size"),
            hidden_size=hidden,
            intermediate_size=config_int(config, "intermediate_size"),
            num_layers=config_int(config, "num_hidden_layers", most=MOST_LAYERS),
            num_heads=heads,
            # A configuration with the rule `ntk` names the context that it has made.
            positions=_positions(config) if _stretched(config) else rope.context,
            type_rows=config_int(config, "type_vocab_size", 1) if config.get("type_vocab_size", 1) else 0,
            norm_eps=config_number(config, "layer_norm_eps", 1e-12),
            activation=str(config.get("hidden_act") or "gelu"),
            rope=rope,
            head=_head(name, hidden, len(shape.labels)),
            pooling=shape,
        )


def shape(config: dict[str, Any]) -> ModelShape:
    """Return the facts that the engine needs before any weight is read."""
    encoder = GteConfig.read(config)
    return ModelShape(
        vocab_size=encoder.vocab_size,
        max_positions=encoder.positions,
        num_layers=encoder.num_layers,
        hidden_size=encoder.hidden_size,
        num_heads=encoder.num_heads,
        num_kv_heads=encoder.num_heads,
        head_dim=encoder.head_dim,
        features=frozenset({"bidirectional"}),
        dtype=config_dtype(config, "float32"),
        pooling=encoder.pooling,
        ropes=(encoder.rope,),
        weights=tuple(_weights(encoder)),
    )


def _weights(c: GteConfig) -> Iterator[WeightShape]:
    """Yield the sizes of what every checkpoint of this family has."""
    hidden, inner = ("hidden_size", c.hidden_size), ("intermediate_size", c.intermediate_size)
    layer = {
        "attention.qkv_proj": (("3 * hidden_size", 3 * c.hidden_size), hidden),
        "attention.o_proj": (hidden, hidden),
        "attn_ln": (hidden,),
        "mlp.up_gate_proj": (("2 * intermediate_size", 2 * c.intermediate_size), hidden),
        "mlp.down_proj": (hidden, inner),
        "mlp_ln": (hidden,),
    }
    for name, dims in layer.items():
        yield WeightShape(name=f"encoder.layer.{{}}.{name}.weight", dims=dims)
    yield WeightShape(name="embeddings.word_embeddings.weight", dims=(("vocab_size", c.vocab_size), hidden))


def _rope(config: Mapping[str, Any], head_dim: int, theta: float) -> RopeConfig:
    """Return the rotary embedding; the makers' rule `ntk` raises the base and slows all frequencies down."""
    scaling = _stretched(config)
    if not scaling:
        return rope_config(config, head_dim, theta=theta)
    if scaling.get("mixed_b") is not None:
        raise CheckpointError("CORE-M126", f"'mixed_b' of 'rope_scaling' is {scaling['mixed_b']!r}: not supported.")
    factor = config_number(scaling, "factor", 1.0, least=1.0, most=_MOST_FACTOR)
    context = _positions(config)
    slower = factor ** (2 / head_dim)
    parameters = {
        "rope_type": "linear",
        "factor": slower,
        "original_max_position_embeddings": math.ceil(context / slower),
        "rope_theta": factor * config_number(config, "rope_theta", theta, least=1.0, most=_MOST_THETA),
    }
    return rope_config({"rope_parameters": parameters, "max_position_embeddings": context}, head_dim)


def _stretched(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the parameters of the rule `ntk`; empty for any other."""
    scaling = config_object(config, "rope_scaling")
    return scaling if scaling.get("rope_type", scaling.get("type")) == "ntk" else {}


def _positions(config: Mapping[str, Any]) -> int:
    return config_int(config, "max_position_embeddings", 8192, most=MOST_POSITIONS)


def _head(name: str, hidden: int, count: int) -> tuple[Dense, ...]:
    if name.endswith(TOKEN):
        return (Dense("classifier", count),)
    return (Dense("pooler.dense", hidden, "tanh"), Dense("classifier", count)) if name.endswith(SEQUENCE) else ()
