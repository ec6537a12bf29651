"""A configuration of Nomic BERT or of Jina Embeddings v3 as data, with transformers' keys or Nomic's own. Torch-free.

What the two architectures do differently is decided here, so that the model itself has no architecture in it.
"""

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
class Kin:
    """An architecture.

    Attributes:
        attention: Module of the attention in a layer.
        widen: Modules of the MLP that read the hidden state: the gate first, if there is one.
        bias: Whether linear layers have one.
        activations: `hidden_act` that are carried out; the first where the configuration says nothing.
        theta, norm_eps, type_rows: What a configuration means that does not say.
        prefixes: What checkpoints with a head put in front of the encoder's names.
        head: Modules of a head on whole texts.
    """

    attention: str
    widen: tuple[str, ...]
    bias: bool
    activations: tuple[str, ...]
    theta: float
    norm_eps: float
    type_rows: int
    prefixes: tuple[str, ...]
    head: tuple[str, str]


_NOMIC = Kin(
    attention="attn",
    widen=("fc12", "fc11"),  # its makers call the gate fc12
    bias=False,
    activations=("silu",),
    theta=1000.0,
    norm_eps=1e-12,
    type_rows=2,
    prefixes=("nomic_bert.", "bert."),
    head=("pooler.dense", "classifier"),
)
_JINA = Kin(
    attention="mixer",
    widen=("fc1",),
    bias=True,
    activations=("gelu", "gelu_new", "gelu_pytorch_tanh", "relu"),
    theta=20000.0,
    norm_eps=1e-5,
    type_rows=1,
    prefixes=("roberta.",),
    head=("classifier.dense", "classifier.out_proj"),
)


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
    kin: Kin
    activation: str
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
        jina = config.get("model_type") == "jina_embeddings_v3"
        name = config_architecture(config, "JinaEmbeddingsV3Model" if jina else "NomicBertModel")
        kin = _JINA if name.startswith("JinaEmbeddingsV3") else _NOMIC
        _refuse(config, kin)
        hidden, heads = config_int(config, "hidden_size"), config_int(config, "num_attention_heads")
        size = config_heads(config, "hidden_size", "num_attention_heads")
        shape = pooling(config, name)
        return NomicConfig(
            vocab_size=config_int(config, "vocab_size"),
            hidden_size=hidden,
            intermediate_size=config_int(config, "intermediate_size"),
            num_layers=config_int(config, "num_hidden_layers", most=MOST_LAYERS),
            num_heads=heads,
            type_rows=config_int(config, "type_vocab_size", kin.type_rows),
            norm_eps=config_number(config, "layer_norm_eps", kin.norm_eps),
            kin=kin,
            activation=str(config.get("hidden_act") or kin.activations[0]),
            rope=rope_config({"rope_theta": config.get("rotary_emb_base"), **config}, size, theta=kin.theta),
            head=_head(name, kin, hidden, len(shape.labels)),
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
        f"{c.kin.attention}.Wqkv": (("3 * hidden_size", 3 * c.hidden_size), hidden),
        f"{c.kin.attention}.out_proj": (hidden, hidden),
        "norm1": (hidden,),
        "norm2": (hidden,),
        **{f"mlp.{name}": (inner, hidden) for name in c.kin.widen},
        "mlp.fc2": (hidden, inner),
    }
    for name, dims in layer.items():
        yield WeightShape(name=f"encoder.layers.{{}}.{name}.weight", dims=dims)
    yield WeightShape(name="embeddings.word_embeddings.weight", dims=(("vocab_size", c.vocab_size), hidden))
    types = ("type_vocab_size", c.type_rows)
    yield WeightShape(name="embeddings.token_type_embeddings.weight", dims=(types, hidden))


def _refuse(config: Mapping[str, Any], kin: Kin) -> None:
    for key, fine in {**_FIXED, "hidden_act": kin.activations}.items():
        if config.get(key, fine[0]) not in fine:
            raise CheckpointError("CORE-M126", f"'{key}': {config[key]!r:.40} is not supported, only {fine[0]!r}.")


def _head(name: str, kin: Kin, hidden: int, count: int) -> tuple[Dense, ...]:
    if name.endswith(TOKEN):
        return (Dense("classifier", count),)
    inner, last = kin.head
    return (Dense(inner, hidden, "tanh"), Dense(last, count)) if name.endswith(SEQUENCE) else ()
