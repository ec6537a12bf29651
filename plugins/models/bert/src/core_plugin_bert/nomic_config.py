"""A Nomic BERT configuration as data, with the keys of its makers or those of transformers. Torch-free."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from core.api import (
    MOST_LAYERS,
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
    rope_config,
)
from core_plugin_bert.heads import SEQUENCE, TOKEN, Dense, pooling

_KEYS = {
    "hidden_size": "n_embd",
    "intermediate_size": "n_inner",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "max_position_embeddings": "n_positions",
    "layer_norm_eps": "layer_norm_epsilon",
}
_FIXED: Mapping[str, tuple[Any, ...]] = {
    "activation_function": ("swiglu",),
    "hidden_act": ("silu",),
    "prenorm": (False,),
    "parallel_block": (False,),
    "use_rms_norm": (False, None),
    "qkv_proj_bias": (False,),
    "mlp_fc1_bias": (False,),
    "mlp_fc2_bias": (False,),
    "rotary_emb_fraction": (1.0,),
    "rotary_emb_interleaved": (False,),
    "rotary_scaling_factor": (None,),
    "moe_every_n_layers": (0, None),
}
"""Settings that the family can vary and this implementation does not: key -> the values that are carried out."""


@dataclass(frozen=True, slots=True)
class NomicConfig:
    """Everything that the model needs to build itself.

    Attributes:
        type_rows: Rows of the token-type embedding.
        head: Layers behind pooling, in order.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    type_rows: int
    norm_eps: float
    rope: RopeConfig
    head: tuple[Dense, ...]
    pooling: PoolingShape

    @property
    def head_dim(self) -> int:
        """Size of an attention head."""
        return self.hidden_size // self.num_heads

    @staticmethod
    def read(given: Mapping[str, Any]) -> NomicConfig:
        """Read a configuration.

        Raises:
            CheckpointError: CORE-M126 when a value is missing or is not supported.
        """
        config = {**given, **{key: given[name] for key, name in _KEYS.items() if name in given and key not in given}}
        _refuse(config)
        name = config_architecture(config, "NomicBertModel")
        hidden, heads = config_int(config, "hidden_size"), config_int(config, "num_attention_heads")
        size = config_heads(config, "hidden_size", "num_attention_heads")
        shape = pooling(config, name)
        return NomicConfig(
            vocab_size=config_int(config, "vocab_size"),
            hidden_size=hidden,
            intermediate_size=config_int(config, "intermediate_size"),
            num_layers=config_int(config, "num_hidden_layers", most=MOST_LAYERS),
            num_heads=heads,
            type_rows=config_int(config, "type_vocab_size", 2),
            norm_eps=config_number(config, "layer_norm_eps", 1e-12),
            rope=rope_config({"rope_theta": config.get("rotary_emb_base"), **config}, size, theta=1000.0),
            head=_head(name, hidden, len(shape.labels)),
            pooling=shape,
        )


def shape(config: dict[str, Any]) -> ModelShape:
    """Return the facts that the engine needs before any weight is read."""
    encoder = NomicConfig.read(config)
    return ModelShape(
        vocab_size=encoder.vocab_size,
        max_positions=encoder.rope.context,
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


def _weights(c: NomicConfig) -> Iterator[WeightShape]:
    """Yield the sizes of what every checkpoint of this family has, whichever of the two sets of keys it uses."""
    hidden, inner = ("hidden_size", c.hidden_size), ("intermediate_size", c.intermediate_size)
    layer = {
        "attn.Wqkv": (("3 * hidden_size", 3 * c.hidden_size), hidden),
        "attn.out_proj": (hidden, hidden),
        "norm1": (hidden,),
        "norm2": (hidden,),
        "mlp.fc11": (inner, hidden),
        "mlp.fc12": (inner, hidden),
        "mlp.fc2": (hidden, inner),
    }
    for name, dims in layer.items():
        yield WeightShape(name=f"encoder.layers.{{}}.{name}.weight", dims=dims)
    yield WeightShape(name="embeddings.word_embeddings.weight", dims=(("vocab_size", c.vocab_size), hidden))
    types = ("type_vocab_size", c.type_rows)
    yield WeightShape(name="embeddings.token_type_embeddings.weight", dims=(types, hidden))


def _refuse(config: Mapping[str, Any]) -> None:
    for key, fine in _FIXED.items():
        if config.get(key, fine[0]) not in fine:
            raise CheckpointError("CORE-M126", f"'{key}': {config[key]!r:.40} is not supported, only {fine[0]!r}.")


def _head(name: str, hidden: int, count: int) -> tuple[Dense, ...]:
    if name.endswith(TOKEN):
        return (Dense("classifier", count),)
    return (Dense("pooler.dense", hidden, "tanh"), Dense("classifier", count)) if name.endswith(SEQUENCE) else ()
