"""Ouro: Llama's decoder with norms before and behind, whose layers run several times."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core_plugin_decoder import FULL, MLP, SLIDING, Attention, CausalLM, Decoder, Fields, Layer, Norm, shape_of

from core.api import MOST_LAYERS, CheckpointError

_PASSES, _FULL_LAYERS = 4, 28
"""Values of keys that a configuration lacks, as its makers have them."""


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration."""
    given = Fields(config, "OuroForCausalLM")
    rope, eps = given.rope(), given.number("rms_norm_eps", 1e-6, least=0.0)
    windows = _windows(given)
    layers = {window: _layer(given, window, eps) for window in set(windows)}
    return Decoder(
        vocab_size=given.integer("vocab_size"),
        hidden_size=given.integer("hidden_size"),
        layers=tuple(layers[window] for window in windows),
        final_norm=Norm(name="norm", eps=eps),
        max_positions=rope.context,
        dtype=given.dtype(),
        tied=given.flag("tie_word_embeddings"),
        passes=_passes(given),
        norm_between=True,
        skips=("*early_exit_gate.*",),
    )


shape = shape_of(read)


class Ouro(CausalLM):
    """The architecture."""

    describe = staticmethod(read)


def _layer(given: Fields, window: int | None, eps: float) -> Layer:
    return Layer(
        attention=Attention(
            heads=given.heads(),
            kv_heads=given.kv_heads(),
            head_dim=given.head_dim(),
            scale=given.head_dim() ** -0.5,
            rope=given.rope(),
            window=window,
        ),
        mlp=MLP(size=given.integer("intermediate_size"), activation=given.text("hidden_act", "silu")),
        before_attention=Norm(name="input_layernorm", eps=eps),
        after_attention=Norm(name="input_layernorm_2", eps=eps),
        before_mlp=Norm(name="post_attention_layernorm", eps=eps),
        after_mlp=Norm(name="post_attention_layernorm_2", eps=eps),
    )


def _passes(given: Fields) -> int:
    """Return how often the layers run: all passes, or as many as come before the one to end behind."""
    given.refuse("attention_bias", "mlp_bias")
    threshold = given.number("early_exit_threshold", 1.0)
    if threshold < 1:
        text = f"'early_exit_threshold' is {threshold:g}: tokens that end behind different passes are not supported"
        raise CheckpointError("CORE-M126", f"{text}, only 1.")
    passes, last = given.integer("total_ut_steps", _PASSES), given.config.get("early_exit_step")
    if last is None:
        return passes
    return 1 + int(given.number("early_exit_step", 0, least=0, most=passes - 1))


def _windows(given: Fields) -> tuple[int | None, ...]:
    """Return the sliding window of each layer, by a flag and `layer_types`, or from a layer on."""
    window = given.window() if given.flag("use_sliding_window") else None
    full = given.number("max_window_layers", _FULL_LAYERS, least=0, most=MOST_LAYERS)
    kinds = given.kinds(lambda index: SLIDING if window is not None and index >= full else FULL)
    return tuple(window if kind == SLIDING else None for kind in kinds)
