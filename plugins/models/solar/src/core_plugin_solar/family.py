"""Solar Pro: Llama's decoder, in which hidden states skip blocks of layers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from core_plugin_decoder import MLP, Attention, CausalLM, Decoder, Fields, Layer, Norm, shape_of

from core.api import CheckpointError

_USUAL = {
    "bskcn_1": [12, 20, 32, 44],
    "bskcn_2": [20, 32],
    "bskcn_3": [16, 24, 36, 48],
    "bskcn_4": [28, 40],
    "bskcn_tv": [0.9, 0.8],
}
"""The skips of Solar Pro, where a configuration has none."""


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration."""
    given = Fields({**_USUAL, **config}, "SolarForCausalLM")
    rope, size, eps = given.rope(), given.head_dim(), given.number("rms_norm_eps", 1e-6, least=0.0)
    bias = given.flag("attention_bias") or given.flag("bias")
    layer = Layer(
        attention=Attention(
            heads=given.heads(),
            kv_heads=given.kv_heads(),
            head_dim=size,
            scale=size**-0.5,
            bias=bias,
            output_bias=bias,
            rope=rope,
        ),
        mlp=MLP(
            size=given.integer("intermediate_size"),
            activation=given.text("hidden_act", "silu"),
            bias=given.flag("mlp_bias"),
            down_bias=given.flag("mlp_bias"),
        ),
        before_attention=Norm(name="input_layernorm", eps=eps),
        before_mlp=Norm(name="post_attention_layernorm", eps=eps),
    )
    return Decoder(
        vocab_size=given.integer("vocab_size"),
        hidden_size=given.integer("hidden_size"),
        layers=_skipping(given, layer),
        final_norm=Norm(name="norm", eps=eps),
        max_positions=rope.context,
        dtype=given.dtype(),
        logit_scale=given.number("logit_scale", 1.0),
        tied=given.flag("tie_word_embeddings"),
    )


def _skipping(given: Fields, layer: Layer) -> tuple[Layer, ...]:
    """Return the layers: two places are kept in, from which later layers blend."""
    kept, blended = (
        (_listed(given, "bskcn_1"), _listed(given, "bskcn_2")),
        (
            _listed(given, "bskcn_3"),
            _listed(given, "bskcn_4"),
        ),
    )
    share = _share(given)
    for place, (sources, readers) in enumerate(zip(kept, blended, strict=True)):
        if readers and min(readers) < min(sources, default=given.layers()):
            text = f"'bskcn_{place + 3}' names layer {min(readers)}, before any of 'bskcn_{place + 1}'."
            raise CheckpointError("CORE-M126", text)
    return tuple(
        replace(
            layer,
            keeps=tuple(place for place, layers in enumerate(kept) if index in layers),
            blends=tuple((place, share) for place, layers in enumerate(blended) if index in layers),
        )
        for index in range(given.layers())
    )


def _listed(given: Fields, key: str) -> frozenset[int]:
    """Return the layers that a key names."""
    layers, count = given.config[key], given.layers()
    if not isinstance(layers, list) or not all(type(one) is int and 0 <= one < count for one in layers):
        raise CheckpointError("CORE-M126", f"'{key}' is {layers!r:.60}, and must name some of {count} layers.")
    return frozenset(layers)


def _share(given: Fields) -> float:
    """Return what a blended state has of the kept one: the second number; the first is that of training."""
    shares = given.config["bskcn_tv"]
    if not isinstance(shares, list) or len(shares) != 2 or not all(type(one) in (int, float) for one in shares):
        raise CheckpointError("CORE-M126", f"'bskcn_tv' is {shares!r:.60}, and must be two numbers.")
    return float(shares[1])


shape = shape_of(read)


class Solar(CausalLM):
    """The architecture."""

    describe = staticmethod(read)
