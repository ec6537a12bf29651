"""SmolLM3: Llama's decoder, in which some layers rotate nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core_plugin_decoder import FULL, MLP, SLIDING, Attention, CausalLM, Decoder, Fields, Layer, Norm, shape_of

from core.api import CheckpointError


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration."""
    given = Fields(config, "SmolLM3ForCausalLM")
    rope, eps = given.rope(theta=2e6), given.number("rms_norm_eps", 1e-6, least=0.0)
    bias, size, mlp_bias = given.flag("attention_bias"), given.head_dim(), given.flag("mlp_bias")
    window, rotated = given.window() if given.flag("use_sliding_window") else None, _rotated(given)
    kinds = given.kinds(lambda index: FULL if rotated[index] or window is None else SLIDING)
    layers = tuple(
        Layer(
            attention=Attention(
                heads=given.heads(),
                kv_heads=given.kv_heads(4),
                head_dim=size,
                scale=size**-0.5,
                bias=bias,
                output_bias=bias,
                rope=rope if rotates else None,
                window=window if kind == SLIDING else None,
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
        for rotates, kind in zip(rotated, kinds, strict=True)
    )
    return Decoder(
        vocab_size=given.integer("vocab_size"),
        hidden_size=given.integer("hidden_size"),
        layers=layers,
        final_norm=Norm(name="norm", eps=eps),
        max_positions=rope.context,
        dtype=given.dtype(),
        tied=given.flag("tie_word_embeddings", default=True),
        pooling=given.pooling(),
        causal=given.causal,
    )


def _rotated(given: Fields) -> tuple[bool, ...]:
    """Return whether each layer rotates: `no_rope_layers` has a 1 for those that do."""
    count, listed = given.layers(), given.config.get("no_rope_layers")
    if listed is None:
        every = given.integer("no_rope_layer_interval", 4)
        return tuple(bool((index + 1) % every) for index in range(count))
    if not isinstance(listed, list) or len(listed) < count or not set(listed) <= {0, 1}:
        raise CheckpointError("CORE-M126", f"'no_rope_layers' must have a 0 or 1 for each of {count} layers.")
    return tuple(map(bool, listed[:count]))


shape = shape_of(read)


class SmolLM3(CausalLM):
    """The architecture."""

    describe = staticmethod(read)
