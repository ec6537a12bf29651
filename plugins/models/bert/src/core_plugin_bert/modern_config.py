"""A ModernBERT configuration as data. Torch-free."""

from __future__ import annotations

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
    config_names,
    config_number,
    config_object,
    rope_config,
)
from core_plugin_bert.heads import SEQUENCE, TOKEN, Dense, pooling

LOCAL, GLOBAL = "sliding_attention", "full_attention"
_THETA = {GLOBAL: ("global_rope_theta", 160_000.0), LOCAL: ("local_rope_theta", 10_000.0)}


@dataclass(frozen=True, slots=True)
class ModernConfig:
    """Everything that the model needs to build itself.

    Attributes:
        kinds: Kind of attention of each layer.
        window: Window of the local layers, both sides counted.
        ropes: Rotary embedding of each kind.
        head: Layers behind pooling, in order.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    max_positions: int
    norm_eps: float
    norm_bias: bool
    attention_bias: bool
    mlp_bias: bool
    activation: str
    kinds: tuple[str, ...]
    window: int
    ropes: Mapping[str, RopeConfig]
    head: tuple[Dense, ...]
    pooling: PoolingShape

    @property
    def head_dim(self) -> int:
        """Size of an attention head."""
        return self.hidden_size // self.num_heads

    @staticmethod
    def read(config: Mapping[str, Any]) -> ModernConfig:
        """Read a configuration with Hugging Face's keys, in the form of transformers 4 or 5.

        Raises:
            CheckpointError: CORE-M126 when a value is missing or is not supported.
        """
        name = config_architecture(config, "ModernBertModel")
        hidden, heads = config_int(config, "hidden_size"), config_int(config, "num_attention_heads")
        size = config_heads(config, "hidden_size", "num_attention_heads")
        ropes = {kind: _rope(config, kind, size) for kind in (GLOBAL, LOCAL)}
        shape = pooling(config, name, "mean" if config.get("classifier_pooling") == "mean" else "cls")
        return ModernConfig(
            vocab_size=config_int(config, "vocab_size"),
            hidden_size=hidden,
            intermediate_size=config_int(config, "intermediate_size"),
            num_heads=heads,
            max_positions=ropes[GLOBAL].context,
            norm_eps=config_number(config, "norm_eps", 1e-5),
            norm_bias=bool(config.get("norm_bias")),
            attention_bias=bool(config.get("attention_bias")),
            mlp_bias=bool(config.get("mlp_bias")),
            activation=str(config.get("hidden_activation") or "gelu"),
            kinds=_kinds(config),
            window=config_int(config, "local_attention", 128) // 2 * 2 + 1,
            ropes=ropes,
            head=_head(config, name, hidden, len(shape.labels)),
            pooling=shape,
        )


def shape(config: dict[str, Any]) -> ModelShape:
    """Return the facts that the engine needs before any weight is read."""
    encoder = ModernConfig.read(config)
    return ModelShape(
        vocab_size=encoder.vocab_size,
        max_positions=encoder.max_positions,
        num_layers=len(encoder.kinds),
        hidden_size=encoder.hidden_size,
        num_heads=encoder.num_heads,
        num_kv_heads=encoder.num_heads,
        head_dim=encoder.head_dim,
        features=frozenset({"bidirectional", "sliding_window"} if LOCAL in encoder.kinds else {"bidirectional"}),
        dtype=config_dtype(config, "float32"),
        pooling=encoder.pooling,
        ropes=tuple(encoder.ropes.values()),
        weights=tuple(_weights(encoder)),
    )


def _weights(c: ModernConfig) -> Iterator[WeightShape]:
    """Yield the sizes of what every checkpoint of this family has."""
    hidden, inner = ("hidden_size", c.hidden_size), ("intermediate_size", c.intermediate_size)
    layer = {
        "attn.Wqkv": (("3 * hidden_size", 3 * c.hidden_size), hidden),
        "attn.Wo": (hidden, hidden),
        "mlp_norm": (hidden,),
        "mlp.Wi": (("2 * intermediate_size", 2 * c.intermediate_size), hidden),
        "mlp.Wo": (hidden, inner),
    }
    for name, dims in layer.items():
        yield WeightShape(name=f"layers.{{}}.{name}.weight", dims=dims)
    yield WeightShape(name="embeddings.tok_embeddings.weight", dims=(("vocab_size", c.vocab_size), hidden))


def _kinds(config: Mapping[str, Any]) -> tuple[str, ...]:
    layers = config_int(config, "num_hidden_layers", most=MOST_LAYERS)
    given = config_names(config, "layer_types")
    if given is None:
        every = config_int(config, "global_attn_every_n_layers", 3)
        return tuple(LOCAL if index % every else GLOBAL for index in range(layers))
    if len(given) != layers or not set(given) <= {LOCAL, GLOBAL}:
        raise CheckpointError("CORE-M126", f"'layer_types' must name {layers} layers as {LOCAL} or {GLOBAL}.")
    return given


def _rope(config: Mapping[str, Any], kind: str, head_dim: int) -> RopeConfig:
    """Read the rotary embedding of one kind of layers: transformers 5 has parameters for each, 4 has a base."""
    key, default = _THETA[kind]
    given = config_object(config, "rope_parameters")
    if given and not given.keys() & _THETA.keys():
        raise CheckpointError("CORE-M126", f"'rope_parameters' must have an object for each of {', '.join(_THETA)}.")
    return rope_config(
        {
            "rope_parameters": config_object(given, kind) or None,
            "rope_theta": config.get(key),
            "max_position_embeddings": _longest(config),
        },
        head_dim,
        theta=default,
    )


def _longest(config: Mapping[str, Any]) -> int:
    return config_int(config, "max_position_embeddings", 8192, most=MOST_POSITIONS)


def _head(config: Mapping[str, Any], name: str, hidden: int, count: int) -> tuple[Dense, ...]:
    if not name.endswith((SEQUENCE, TOKEN)):
        return ()
    activation = str(config.get("classifier_activation") or "gelu")
    first = Dense("head.dense", hidden, activation, "head.norm", bool(config.get("classifier_bias")))
    return (first, Dense("classifier", count))
