"""A checkpoint's configuration as this family reads it. Torch-free.

What Gemma 2 and Gemma 3 do differently is decided here, so that the model itself has no architecture in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from core.api import (
    MOST_LAYERS,
    MOST_POSITIONS,
    CheckpointError,
    ModelShape,
    RopeConfig,
    WeightShape,
    config_architecture,
    config_dtype,
    config_int,
    config_names,
    config_number,
    config_object,
    features_of,
    rope_config,
)

SLIDING, FULL = "sliding_attention", "full_attention"
"""Kinds of layers, by transformers' names."""

_BY_TYPE = MappingProxyType({"gemma2": "Gemma2ForCausalLM"})
_ORIGINAL = "original_max_position_embeddings"


@dataclass(frozen=True, slots=True)
class Defaults:
    """Values of keys that a configuration lacks, as transformers has them.

    Attributes:
        pattern: One layer in so many sees the whole context, the others a window.
        softcap, final_softcap: Soft caps of attention scores and of logits.
        thetas: Base of the rotary embedding of each kind of layers.
    """

    pattern: int
    context: int
    softcap: float | None
    final_softcap: float | None
    qk_norm: bool
    thetas: Mapping[str, float]


DEFAULTS = MappingProxyType(
    {
        "Gemma2ForCausalLM": Defaults(2, 8192, 50.0, 30.0, False, {SLIDING: 1e4, FULL: 1e4}),
        "Gemma3ForCausalLM": Defaults(6, 131_072, None, None, True, {SLIDING: 1e4, FULL: 1e6}),
    }
)


@dataclass(frozen=True, slots=True)
class GemmaConfig:
    """Everything that the model needs to build itself.

    Attributes:
        scale: What scores are multiplied by.
        softcap, final_softcap: Soft caps of attention scores and of logits; None for none.
        kinds: `SLIDING` or `FULL`, for each layer.
        windows: Sliding window of each layer, None for full attention.
        ropes: Rotary embedding of each kind.
        bias: Whether the linears of attention have a bias.
        qk_norm: Whether queries and keys are normalised per head.
        tied: Whether the output projection is the embedding.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    norm_eps: float
    activation: str
    scale: float
    softcap: float | None
    final_softcap: float | None
    kinds: tuple[str, ...]
    windows: tuple[int | None, ...]
    ropes: Mapping[str, RopeConfig]
    bias: bool
    qk_norm: bool
    tied: bool

    @staticmethod
    def read(config: Mapping[str, Any]) -> GemmaConfig:
        """Read a configuration with Hugging Face's keys, in the form of transformers 4 or 5.

        Raises:
            CheckpointError: CORE-M126, a value is missing or not supported; CORE-M125, nobody computes its rotary
                scaling.
        """
        if config.get("use_bidirectional_attention"):
            raise CheckpointError("CORE-M126", "'use_bidirectional_attention' is true, which is not supported.")
        default = _defaults(config)
        heads, head_dim = config_int(config, "num_attention_heads", 8), config_int(config, "head_dim", 256)
        kinds = _kinds(config, default.pattern)
        window = None if config.get("sliding_window") is None else config_int(config, "sliding_window")
        return GemmaConfig(
            vocab_size=config_int(config, "vocab_size"),
            hidden_size=config_int(config, "hidden_size"),
            intermediate_size=config_int(config, "intermediate_size"),
            num_heads=heads,
            num_kv_heads=_kv_heads(config, heads),
            head_dim=head_dim,
            norm_eps=config_number(config, "rms_norm_eps", 1e-6),
            activation=str(config.get("hidden_activation") or "gelu_pytorch_tanh"),
            scale=config_number(config, "query_pre_attn_scalar", 256, least=1e-3, most=1e6) ** -0.5,
            softcap=_cap(config, "attn_logit_softcapping", default.softcap),
            final_softcap=_cap(config, "final_logit_softcapping", default.final_softcap),
            kinds=kinds,
            windows=tuple(window if kind == SLIDING else None for kind in kinds),
            ropes={kind: _rope(config, kind, head_dim, default) for kind in (FULL, SLIDING)},
            bias=bool(config.get("attention_bias")),
            qk_norm=default.qk_norm,
            tied=config.get("tie_word_embeddings") is not False,
        )


def shape(config: dict[str, Any]) -> ModelShape:
    """Return the facts that the engine needs before any weight is read."""
    gemma = GemmaConfig.read(config)
    full, sliding = gemma.ropes[FULL], gemma.ropes[SLIDING]
    return ModelShape(
        vocab_size=gemma.vocab_size,
        max_positions=full.context,
        num_layers=len(gemma.kinds),
        hidden_size=gemma.hidden_size,
        num_heads=gemma.num_heads,
        num_kv_heads=gemma.num_kv_heads,
        head_dim=gemma.head_dim,
        features=features_of(gemma.windows, gemma.softcap),
        dtype=config_dtype(config, "bfloat16"),
        ropes=(full,) if full == sliding else (full, sliding),
        weights=tuple(_weights(gemma)),
    )


def _weights(c: GemmaConfig) -> Iterator[WeightShape]:
    """Yield the sizes of what every checkpoint of this family has."""
    hidden, inner = ("hidden_size", c.hidden_size), ("intermediate_size", c.intermediate_size)
    queries = ("num_attention_heads * head_dim", c.num_heads * c.head_dim)
    keys = ("num_key_value_heads * head_dim", c.num_kv_heads * c.head_dim)
    layer = {
        "input_layernorm": (hidden,),
        "post_attention_layernorm": (hidden,),
        "pre_feedforward_layernorm": (hidden,),
        "post_feedforward_layernorm": (hidden,),
        "self_attn.q_proj": (queries, hidden),
        "self_attn.k_proj": (keys, hidden),
        "self_attn.v_proj": (keys, hidden),
        "self_attn.o_proj": (hidden, queries),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
    }
    if c.qk_norm:
        layer |= dict.fromkeys(("self_attn.q_norm", "self_attn.k_norm"), (("head_dim", c.head_dim),))
    for name, dims in layer.items():
        yield WeightShape(name=f"layers.{{}}.{name}.weight", dims=dims)
    yield WeightShape(name="embed_tokens.weight", dims=(("vocab_size", c.vocab_size), hidden))
    yield WeightShape(name="lm_head.weight", dims=(("vocab_size", c.vocab_size), hidden))
    yield WeightShape(name="norm.weight", dims=(hidden,))


def _defaults(config: Mapping[str, Any]) -> Defaults:
    name = config_architecture(config, _BY_TYPE.get(str(config.get("model_type")), "Gemma3ForCausalLM"))
    if name not in DEFAULTS:
        raise CheckpointError("CORE-M126", f"the architecture is {name!r:.60}, not one of {', '.join(DEFAULTS)}.")
    return DEFAULTS[name]


def _kv_heads(config: Mapping[str, Any], heads: int) -> int:
    count = config_int(config, "num_key_value_heads", 4)
    if heads % count:
        text = f"'num_attention_heads' is {heads}, which {count} ('num_key_value_heads') cannot share."
        raise CheckpointError("CORE-M126", text)
    return count


def _cap(config: Mapping[str, Any], key: str, default: float | None) -> float | None:
    """Return a soft cap: null says that there is none, a missing key says nothing."""
    if config.get(key, default) is None:
        return None
    return config_number(config, key, default or 0.0, least=1e-3, most=1e6)


def _kinds(config: Mapping[str, Any], pattern: int) -> tuple[str, ...]:
    layers = config_int(config, "num_hidden_layers", most=MOST_LAYERS)
    given = config_names(config, "layer_types")
    if given is None:
        every = config_int(config, "sliding_window_pattern", pattern)
        return tuple(SLIDING if (layer + 1) % every else FULL for layer in range(layers))
    if len(given) != layers or not set(given) <= {SLIDING, FULL}:
        raise CheckpointError("CORE-M126", f"'layer_types' must name {layers} layers as {SLIDING} or {FULL}.")
    return given


def _rope(config: Mapping[str, Any], kind: str, head_dim: int, default: Defaults) -> RopeConfig:
    """Read the rotary embedding of one kind of layers: transformers 5 may have parameters for each.

    Gemma 2 has one for all layers. Gemma 3 scales that of full attention only; sliding layers have their own base.
    """
    given = config_object(config, "rope_parameters")
    context = config_int(config, "max_position_embeddings", default.context, most=MOST_POSITIONS)
    if given.keys() & {SLIDING, FULL}:
        parameters = dict(config_object(given, kind))
    elif kind == SLIDING and default.thetas[SLIDING] != default.thetas[FULL]:
        parameters = {"rope_theta": config.get("rope_local_base_freq")}
    else:
        parameters = {"rope_theta": config.get("rope_theta"), **given, **config_object(config, "rope_scaling")}
    here = {"rope_parameters": parameters, "max_position_embeddings": context}
    rope = rope_config(here, head_dim, theta=default.thetas[kind])
    if rope.rule != "linear" or _ORIGINAL in rope.scaling:
        return rope
    # These configurations name the context that linear scaling has made, not the one before it.
    return rope.model_copy(update={"scaling": {**rope.scaling, _ORIGINAL: context / rope.factor}})
