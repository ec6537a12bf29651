"""Peculiarities of architectures of Llama's kind, as far as their configurations do not state them. Torch-free."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from core_plugin_decoder import FULL, SLIDING, Decoder, Fields

from core.api import MOST_LAYERS

Windows = tuple[int | None, ...]


def _none(given: Fields) -> Windows:
    return (None,) * given.layers()


def _every(given: Fields) -> Windows:
    return (given.window(),) * given.layers()


def _qwen(given: Fields) -> Windows:
    """Windows from a layer on, or as `layer_types` says; only where a flag asks for them."""
    window = given.window()
    if window is None or not given.flag("use_sliding_window"):
        return _none(given)
    full = given.number("max_window_layers", 28, least=0, most=MOST_LAYERS)
    return _by_kind(given, window, lambda index: FULL if index < full else SLIDING)


def _cwm(given: Fields) -> Windows:
    return _by_kind(given, given.window(), lambda index: FULL if index % 4 == 0 else SLIDING)


def _by_kind(given: Fields, window: int | None, default: Callable[[int], str]) -> Windows:
    return tuple(window if kind == SLIDING else None for kind in given.kinds(default))


def _fairseq2(decoder: Decoder) -> Decoder:
    layer = decoder.layers[0]
    own = replace(
        layer,
        attention=replace(layer.attention, output="output_proj"),
        mlp=replace(layer.mlp, name="ffn", up="inner_proj", down="output_proj"),
        before_attention=replace(layer.before_attention, name="self_attn_layer_norm"),
        before_mlp=replace(layer.before_mlp, name="ffn_layer_norm"),
    )
    return replace(
        decoder,
        layers=(own,) * len(decoder.layers),
        final_norm=replace(decoder.final_norm, name="decoder.layer_norm"),
        root="",
        layer="decoder.layers.{}",
        embed="decoder_frontend.embed",
        head="final_proj",
    )


@dataclass(frozen=True, slots=True)
class Kin:
    """An architecture.

    Attributes:
        qkv_bias: Whether queries, keys and values always have a bias.
        biases: Keys, any of which gives all linears of the attention one.
        mlp_bias: Whether `mlp_bias` is read.
        head_norm: Whether queries and keys are normalised head by head.
        windows: Returns the sliding window of each layer.
        defaults: Of keys that the configuration lacks.
        interleaved: Whether neighbouring dimensions of a head rotate together.
        named: Returns the decoder with the names that its checkpoints have, where they are not Llama's.
        both_ways: Whether every token sees every other, whatever the configuration says.
        projects: Whether a linear layer brings hidden states to the size of embeddings, `embedding_size` or else
            `num_labels`.
        renames, skips: Further rules of checkpoint names.
    """

    qkv_bias: bool = False
    biases: tuple[str, ...] = ("attention_bias",)
    mlp_bias: bool = True
    head_norm: bool = False
    windows: Callable[[Fields], Windows] = _none
    defaults: Mapping[str, Any] = field(default_factory=dict)
    interleaved: bool = False
    named: Callable[[Decoder], Decoder] | None = None
    both_ways: bool = False
    projects: bool = False
    renames: tuple[tuple[str, str], ...] = ()
    skips: tuple[str, ...] = ()


_LLAMA = Kin()
_QWEN2 = Kin(qkv_bias=True, biases=(), mlp_bias=False, windows=_qwen)
_OLD_YI = (
    ("model.layers.*.ln1.", "model.layers.*.input_layernorm."),
    ("model.layers.*.ln2.", "model.layers.*.post_attention_layernorm."),
)
_CWM_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 1e6,
    "factor": 16.0,
    "high_freq_factor": 4.0,
    "low_freq_factor": 1.0,
    "original_max_position_embeddings": 8192,
}

KIN: Mapping[str, Kin] = types.MappingProxyType(
    {
        "Llama": _LLAMA,
        "LLaMA": _LLAMA,
        "Aquila": _LLAMA,
        "Xverse": _LLAMA,
        "Yi": Kin(renames=_OLD_YI),
        "IQuestCoder": Kin(defaults={"head_dim": 128, "rms_norm_eps": 1e-5}),
        "Cwm": Kin(
            biases=(),
            windows=_cwm,
            defaults={"head_dim": 128, "rms_norm_eps": 1e-5, "sliding_window": 8192, "rope_parameters": _CWM_ROPE},
        ),
        "Fairseq2Llama": Kin(interleaved=True, named=_fairseq2),
        "PanguEmbedded": Kin(biases=("attention_bias", "bias")),
        "Mistral": Kin(biases=(), mlp_bias=False, windows=_every),
        "Qwen2": _QWEN2,
        "MiMo": Kin(qkv_bias=True, biases=(), mlp_bias=False, windows=_qwen, skips=("model.mtp_layers.*",)),
        "Qwen3": Kin(mlp_bias=False, head_norm=True, windows=_qwen, defaults={"head_dim": 128}),
        "LlamaBidirectional": Kin(both_ways=True),
        "EuroBert": Kin(both_ways=True, defaults={"rms_norm_eps": 1e-5}),
        "VoyageQwen3BidirectionalEmbed": Kin(
            mlp_bias=False, head_norm=True, windows=_qwen, defaults={"head_dim": 128}, both_ways=True, projects=True
        ),
    }
)
"""Beginning of an architecture's name -> what is particular about it."""

BY_TYPE: Mapping[str, str] = types.MappingProxyType({"mistral": "Mistral", "qwen2": "Qwen2", "qwen3": "Qwen3"})
"""`model_type` -> beginning of the architecture's name, where the configuration names no architecture."""
