"""A checkpoint's configuration as this family reads it. Torch-free.

What the four architectures do differently is decided here, so that the model itself has no architecture in it.
"""

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
    WeightShape,
    config_architecture,
    config_dtype,
    config_heads,
    config_int,
    config_number,
)
from core_plugin_bert.heads import SEQUENCE, TOKEN, Dense, pooling

PREFIXES = {"Bert": "bert", "Roberta": "roberta", "XLMRoberta": "roberta", "DistilBert": "distilbert", "MPNet": "mpnet"}
"""Family -> what stands in front of the encoder's tensors in checkpoints that have a head."""

_BY_TYPE = {
    "roberta": "RobertaModel",
    "xlm-roberta": "XLMRobertaModel",
    "distilbert": "DistilBertModel",
    "mpnet": "MPNetModel",
}
_MPNET_OFFSET = 2
"""Positions of MPNet begin behind its padding id, which is 1 whatever the configuration says."""


@dataclass(frozen=True, slots=True)
class LayerNames:
    """Where one layer's tensors are; all behind the layer's own prefix."""

    layer: str
    qkv: str
    parts: tuple[str, str, str]
    attention_out: str
    attention_norm: str
    up: str
    down: str
    norm: str


_BERT = LayerNames(
    layer="encoder.layer.{}",
    qkv="attention.self",
    parts=("query", "key", "value"),
    attention_out="attention.output.dense",
    attention_norm="attention.output.LayerNorm",
    up="intermediate.dense",
    down="output.dense",
    norm="output.LayerNorm",
)
_DISTIL = LayerNames(
    layer="transformer.layer.{}",
    qkv="attention",
    parts=("q_lin", "k_lin", "v_lin"),
    attention_out="attention.out_lin",
    attention_norm="sa_layer_norm",
    up="ffn.lin1",
    down="ffn.lin2",
    norm="output_layer_norm",
)
_MPNET = LayerNames(
    layer="encoder.layer.{}",
    qkv="attention.attn",
    parts=("q", "k", "v"),
    attention_out="attention.attn.o",
    attention_norm="attention.LayerNorm",
    up="intermediate.dense",
    down="output.dense",
    norm="output.LayerNorm",
)


@dataclass(frozen=True, slots=True)
class EncoderConfig:
    """Everything that the model needs to build itself.

    Attributes:
        position_rows, position_offset: Rows of the position embedding, and which of them the first token gets.
        type_rows: Rows of the token-type embedding; 0 if there is none.
        distance_rows: Rows of the table of what distances add to scores; 0 if there is none.
        prefix: What checkpoints with a head put in front of the encoder's names.
        head: Layers behind pooling, in order.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    position_rows: int
    position_offset: int
    type_rows: int
    distance_rows: int
    norm_eps: float
    activation: str
    names: LayerNames
    prefix: str
    head: tuple[Dense, ...]
    pooling: PoolingShape

    @staticmethod
    def read(config: Mapping[str, Any]) -> EncoderConfig:
        """Read a configuration with Hugging Face's keys.

        Raises:
            CheckpointError: CORE-M126 when a value is missing or is not supported.
        """
        name = config_architecture(config, _BY_TYPE.get(str(config.get("model_type")), "BertModel"))
        family = name.removesuffix("Model").partition("For")[0]
        _refuse(config)
        distil, mpnet = family == "DistilBert", family == "MPNet"
        shape = pooling(config, name)
        hidden = config_int(config, "dim" if distil else "hidden_size")
        config_heads(config, "dim" if distil else "hidden_size", "n_heads" if distil else "num_attention_heads")
        return EncoderConfig(
            vocab_size=config_int(config, "vocab_size"),
            hidden_size=hidden,
            intermediate_size=config_int(config, "hidden_dim" if distil else "intermediate_size"),
            num_layers=config_int(config, "n_layers" if distil else "num_hidden_layers", most=MOST_LAYERS),
            num_heads=config_int(config, "n_heads" if distil else "num_attention_heads"),
            position_rows=config_int(config, "max_position_embeddings", 512, most=MOST_POSITIONS),
            position_offset=_offset(config, family),
            type_rows=0 if distil or mpnet else config_int(config, "type_vocab_size", 2),
            distance_rows=config_int(config, "relative_attention_num_buckets", 32) if mpnet else 0,
            norm_eps=1e-12 if distil else config_number(config, "layer_norm_eps", 1e-12),
            activation=str(config.get("activation" if distil else "hidden_act") or "gelu"),
            names=_DISTIL if distil else _MPNET if mpnet else _BERT,
            prefix=PREFIXES.get(family, "bert"),
            head=_head(family, name, hidden, len(shape.labels)),
            pooling=shape,
        )

    @property
    def max_positions(self) -> int:
        """Longest prompt in tokens."""
        return self.position_rows - self.position_offset


def shape(config: dict[str, Any]) -> ModelShape:
    """Return the facts that the engine needs before any weight is read."""
    encoder = EncoderConfig.read(config)
    return ModelShape(
        vocab_size=encoder.vocab_size,
        max_positions=encoder.max_positions,
        num_layers=encoder.num_layers,
        hidden_size=encoder.hidden_size,
        num_heads=encoder.num_heads,
        num_kv_heads=encoder.num_heads,
        head_dim=encoder.hidden_size // encoder.num_heads,
        features=frozenset({"bidirectional", "position_bias"} if encoder.distance_rows else {"bidirectional"}),
        dtype=config_dtype(config, "float32"),
        pooling=encoder.pooling,
        weights=tuple(_weights(encoder)),
        layers_key="n_layers" if encoder.names is _DISTIL else "num_hidden_layers",
    )


def _weights(c: EncoderConfig) -> Iterator[WeightShape]:
    """Yield the sizes of what every checkpoint of this family has."""
    distil, names = c.names is _DISTIL, c.names
    hidden = ("dim" if distil else "hidden_size", c.hidden_size)
    inner = ("hidden_dim" if distil else "intermediate_size", c.intermediate_size)
    yield WeightShape(name="embeddings.word_embeddings.weight", dims=(("vocab_size", c.vocab_size), hidden))
    positions = ("max_position_embeddings", c.position_rows)
    yield WeightShape(name="embeddings.position_embeddings.weight", dims=(positions, hidden))
    if c.type_rows:
        types = ("type_vocab_size", c.type_rows)
        yield WeightShape(name="embeddings.token_type_embeddings.weight", dims=(types, hidden))
    square = [f"{names.qkv}.{part}" for part in names.parts] + [names.attention_out]
    layer = dict.fromkeys(square, (hidden, hidden)) | {names.up: (inner, hidden), names.down: (hidden, inner)}
    layer |= dict.fromkeys((names.attention_norm, names.norm), (hidden,))
    for name, dims in layer.items():
        yield WeightShape(name=f"{names.layer}.{name}.weight", dims=dims)


def _offset(config: Mapping[str, Any], family: str) -> int:
    if family == "MPNet":
        return _MPNET_OFFSET
    # RoBERTa counts from behind the padding id.
    return int(config_number(config, "pad_token_id", 0, most=MOST_POSITIONS)) + 1 if family.endswith("Roberta") else 0


def _head(family: str, name: str, hidden: int, count: int) -> tuple[Dense, ...]:
    if name.endswith(TOKEN):
        return (Dense("classifier", count),)
    if not name.endswith(SEQUENCE):
        return ()
    if family == "DistilBert":
        return (Dense("pre_classifier", hidden, "relu"), Dense("classifier", count))
    if family == "Bert":
        return (Dense("pooler.dense", hidden, "tanh"), Dense("classifier", count))
    return (Dense("classifier.dense", hidden, "tanh"), Dense("classifier.out_proj", count))


def _refuse(config: Mapping[str, Any]) -> None:
    kind = config.get("position_embedding_type", "absolute")
    if kind != "absolute":
        raise CheckpointError("CORE-M126", f"position embeddings of type '{kind}' are not supported, only 'absolute'.")
    if config.get("is_decoder"):
        raise CheckpointError("CORE-M126", "an encoder used as a decoder ('is_decoder') is not supported.")
