"""A checkpoint's configuration as this family reads it. Torch-free.

What the four architectures do differently is decided here, so that the model itself has no architecture in it.
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
    config_int,
    config_names,
    config_number,
    features_of,
    rope_config,
)
from core_plugin_llama.pooled import BARE, GENERATES, SEQUENCE, pooling

_BY_TYPE = {"mistral": "MistralForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """Everything that the model needs to build itself.

    Attributes:
        windows: Sliding window of each layer, None for full attention.
        qkv_bias, output_bias, mlp_bias: Which linears have a bias; `output_bias` is that of `o_proj`.
        qk_norm: Whether queries and keys are normalised per head.
        tied: Whether the output projection is the embedding.
        causal: Whether a token sees only those before it.
        projects: Whether there is an output projection.
        pooling: What the checkpoint gives instead of tokens.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    norm_eps: float
    activation: str
    rope: RopeConfig
    windows: tuple[int | None, ...]
    qkv_bias: bool
    output_bias: bool
    mlp_bias: bool
    qk_norm: bool
    tied: bool
    causal: bool
    projects: bool
    pooling: PoolingShape | None

    @staticmethod
    def read(config: Mapping[str, Any]) -> DecoderConfig:
        """Read a configuration with Hugging Face's keys, in the form of transformers 4 or 5.

        Raises:
            CheckpointError: CORE-M126, a value is missing or is no positive integer; CORE-M125, nobody computes its
                rotary scaling.
        """
        name = architecture(config)
        family = _family(name)
        hidden, heads = config_int(config, "hidden_size"), config_int(config, "num_attention_heads")
        bias = bool(config.get("attention_bias")) and family in ("Llama", "Qwen3")
        head_dim = config_int(config, "head_dim", 128 if family == "Qwen3" else hidden // heads)
        return DecoderConfig(
            vocab_size=config_int(config, "vocab_size"),
            hidden_size=hidden,
            intermediate_size=config_int(config, "intermediate_size"),
            num_heads=heads,
            num_kv_heads=_kv_heads(config, heads),
            head_dim=head_dim,
            norm_eps=config_number(config, "rms_norm_eps", 1e-6),
            activation=str(config.get("hidden_act") or "silu"),
            rope=rope_config(config, head_dim),
            windows=_checked_windows(config, family),
            qkv_bias=bias or family == "Qwen2",
            output_bias=bias,
            mlp_bias=bool(config.get("mlp_bias")) and family == "Llama",
            qk_norm=family == "Qwen3",
            tied=bool(config.get("tie_word_embeddings", False)),
            causal=config.get("is_causal") is not False,
            projects=name.endswith(GENERATES),
            pooling=pooling(config, name),
        )


def shape(config: dict[str, Any]) -> ModelShape:
    """Return the facts that the engine needs before any weight is read."""
    decoder = DecoderConfig.read(config)
    return ModelShape(
        vocab_size=decoder.vocab_size,
        max_positions=decoder.rope.context,
        num_layers=len(decoder.windows),
        hidden_size=decoder.hidden_size,
        num_heads=decoder.num_heads,
        num_kv_heads=decoder.num_kv_heads,
        head_dim=decoder.head_dim,
        features=features_of(decoder.windows, None) | (set() if decoder.causal else {"bidirectional"}),
        dtype=config_dtype(config, "bfloat16"),
        pooling=decoder.pooling,
        ropes=(decoder.rope,),
        weights=tuple(_weights(decoder)),
    )


def _weights(c: DecoderConfig) -> Iterator[WeightShape]:
    """Yield the sizes of what every checkpoint of this family has."""
    hidden, inner, vocabulary = (
        ("hidden_size", c.hidden_size),
        ("intermediate_size", c.intermediate_size),
        ("vocab_size", c.vocab_size),
    )
    queries = ("num_attention_heads * head_dim", c.num_heads * c.head_dim)
    keys = ("num_key_value_heads * head_dim", c.num_kv_heads * c.head_dim)
    layer = {
        "input_layernorm": (hidden,),
        "post_attention_layernorm": (hidden,),
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
    yield WeightShape(name="embed_tokens.weight", dims=(vocabulary, hidden))
    yield WeightShape(name="lm_head.weight", dims=(vocabulary, hidden))
    yield WeightShape(name="norm.weight", dims=(hidden,))


def architecture(config: Mapping[str, Any]) -> str:
    """Return the architecture's name, from `model_type` where `architectures` is missing."""
    return config_architecture(config, _BY_TYPE.get(str(config.get("model_type")), "LlamaForCausalLM"))


def _family(name: str) -> str:
    for kind in (GENERATES, SEQUENCE, BARE):
        name = name.removesuffix(kind)
    return name


def _kv_heads(config: Mapping[str, Any], heads: int) -> int:
    count = config_int(config, "num_key_value_heads", heads)
    if heads % count:
        text = f"'num_attention_heads' is {heads}, which {count} ('num_key_value_heads') cannot share."
        raise CheckpointError("CORE-M126", text)
    return count


def _checked_windows(config: Mapping[str, Any], family: str) -> tuple[int | None, ...]:
    windows = _windows(config, family)
    if config.get("is_causal") is False and any(windows):
        raise CheckpointError("CORE-M126", "a sliding window beside 'is_causal': false is not supported.")
    return windows


def _windows(config: Mapping[str, Any], family: str) -> tuple[int | None, ...]:
    layers = config_int(config, "num_hidden_layers", most=MOST_LAYERS)
    if config.get("sliding_window") is None:
        return (None,) * layers
    if family == "Mistral":
        return (config_int(config, "sliding_window"),) * layers
    if not family.startswith("Qwen") or not config.get("use_sliding_window"):
        return (None,) * layers
    window, kinds = config_int(config, "sliding_window"), config_names(config, "layer_types")
    if kinds is None:
        full = config_number(config, "max_window_layers", 28, most=MOST_LAYERS)
        kinds = tuple("full_attention" if layer < full else "sliding_attention" for layer in range(layers))
    if len(kinds) != layers:
        raise CheckpointError("CORE-M126", f"'layer_types' names {len(kinds)} layers, 'num_hidden_layers' {layers}.")
    return tuple(window if kind == "sliding_attention" else None for kind in kinds)
