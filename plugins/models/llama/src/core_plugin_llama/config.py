"""Configurations of Llama's kind as descriptions. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from core_plugin_decoder import MLP, Attention, Decoder, Fields, HeadNorm, Layer, Norm, Score, shape_of

from core.api import CheckpointError, PoolingShape, config_architecture
from core_plugin_llama.kin import BY_TYPE, KIN, Kin, Windows

_ENDINGS = (
    *("ForCausalLM", "ForMaskedLM", "ForSequenceClassification", "ForRewardModel", "ForProcessRewardModel"),
    "Model",
)
_METHODS: Mapping[str, Literal["mean", "cls", "last"]] = {"avg": "mean", "cls": "cls", "last": "last"}
"""`pooling` of models that see both ways -> the method."""

_GENERATE = {"AquilaModel": "AquilaForCausalLM"}
"""Architectures that are named as if they had no output projection."""


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration.

    Raises:
        CheckpointError: CORE-M126, a value is missing or is no positive integer; CORE-M125, nobody computes its rotary
            scaling.
    """
    name = config_architecture(config, BY_TYPE.get(str(config.get("model_type")), "Llama") + "ForCausalLM")
    name = _GENERATE.get(name, name)
    kin = KIN[_family(name)]
    missing = {key: value for key, value in kin.defaults.items() if key not in config}
    if "rope_scaling" in config:  # what transformers 4 calls it
        missing.pop("rope_parameters", None)
    fixed = {"architectures": [name], **({"is_causal": False} if kin.both_ways else {})}
    return _described(Fields({**config, **missing, **fixed}), kin)


shape = shape_of(read)


def _described(given: Fields, kin: Kin) -> Decoder:
    rope, eps = given.rope(), given.number("rms_norm_eps", 1e-6, least=0.0, most=1.0)
    windows = _windows(given, kin)
    layers = {window: _layer(given, kin, window, eps) for window in set(windows)}
    decoder = Decoder(
        vocab_size=given.integer("vocab_size"),
        hidden_size=given.integer("hidden_size"),
        layers=tuple(layers[window] for window in windows),
        final_norm=Norm(name="norm", eps=eps),
        max_positions=rope.context,
        dtype=given.dtype(),
        tied=given.flag("tie_word_embeddings"),
        pooling=_pooling(given, kin),
        score=_score(given, kin),
        causal=given.causal,
        renames=kin.renames,
        skips=kin.skips,
    )
    return decoder if kin.named is None else kin.named(decoder)


def _layer(given: Fields, kin: Kin, window: int | None, eps: float) -> Layer:
    bias, head_dim = any(given.flag(key) for key in kin.biases), given.head_dim()
    mlp_bias = kin.mlp_bias and given.flag("mlp_bias")
    return Layer(
        attention=Attention(
            heads=given.heads(),
            kv_heads=given.kv_heads(),
            head_dim=head_dim,
            scale=head_dim**-0.5,
            bias=bias or kin.qkv_bias,
            output_bias=bias,
            rope=given.rope(interleaved=kin.interleaved),
            q_norm=HeadNorm(norm=Norm(name="q_norm", eps=eps)) if kin.head_norm else None,
            k_norm=HeadNorm(norm=Norm(name="k_norm", eps=eps)) if kin.head_norm else None,
            window=window,
        ),
        mlp=MLP(
            size=given.integer("intermediate_size"),
            activation=given.text("hidden_act", "silu"),
            bias=mlp_bias,
            down_bias=mlp_bias,
        ),
        before_attention=Norm(name="input_layernorm", eps=eps),
        before_mlp=Norm(name="post_attention_layernorm", eps=eps),
    )


def _pooling(given: Fields, kin: Kin) -> PoolingShape | None:
    """Return what the checkpoint gives instead of tokens; None if it generates."""
    pooling = given.pooling()
    if pooling is None or not kin.both_ways:
        return pooling
    given.expect("pooling", *_METHODS)
    changes: dict[str, Any] = {"method": _METHODS[given.text("pooling", "avg")]}
    if kin.projects:
        size = "embedding_size" if given.config.get("embedding_size") is not None else "num_labels"
        changes["size"] = given.integer(size)
    return pooling.model_copy(update=changes)


def _score(given: Fields, kin: Kin) -> Score:
    if given.architecture.endswith(("ForRewardModel", "ForProcessRewardModel")):
        return Score(name="score.2", bias=True, inner="score.0")
    score = given.score()
    return replace(score, scale=1 / given.number("temperature", 1.0, least=1e-6)) if kin.both_ways else score


def _windows(given: Fields, kin: Kin) -> Windows:
    windows = kin.windows(given)
    if not given.causal and any(windows):
        raise CheckpointError("CORE-M126", "a sliding window beside 'is_causal': false is not supported.")
    return windows


def _family(name: str) -> str:
    for ending in _ENDINGS:
        name = name.removesuffix(ending)
    return name
