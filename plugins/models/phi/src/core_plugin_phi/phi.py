"""Phi 1, 1.5 and 2: attention and MLP side by side behind one layer norm, biases everywhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core_plugin_decoder import MLP, Attention, CausalLM, Decoder, Fields, HeadNorm, Layer, Norm, shape_of


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration."""
    given = Fields(config, "PhiForCausalLM")
    eps, size = given.number("layer_norm_eps", 1e-5, least=0.0), given.head_dim()
    rope = given.rope(partial=0.5)

    def head_norm(name: str) -> HeadNorm | None:
        normed = given.flag("qk_layernorm")
        return HeadNorm(norm=Norm(name=name, kind="layer", eps=eps, bias=True)) if normed else None

    layer = Layer(
        attention=Attention(
            heads=given.heads(),
            kv_heads=given.kv_heads(),
            head_dim=size,
            scale=size**-0.5,
            output="dense",
            bias=True,
            output_bias=True,
            rope=rope,
            q_norm=head_norm("q_layernorm"),
            k_norm=head_norm("k_layernorm"),
        ),
        mlp=MLP(
            size=given.integer("intermediate_size"),
            activation=given.text("hidden_act", "gelu_new"),
            gate=None,
            up="fc1",
            down="fc2",
            bias=True,
            down_bias=True,
        ),
        before_attention=Norm(name="input_layernorm", kind="layer", eps=eps, bias=True),
        parallel=True,
    )
    return Decoder(
        vocab_size=given.integer("vocab_size"),
        hidden_size=given.integer("hidden_size"),
        layers=(layer,) * given.layers(),
        final_norm=Norm(name="final_layernorm", kind="layer", eps=eps, bias=True),
        max_positions=rope.context,
        dtype=given.dtype("float16"),
        head_bias=True,
        tied=given.flag("tie_word_embeddings"),
        pooling=given.pooling(),
        causal=given.causal,
    )


shape = shape_of(read)


class Phi(CausalLM):
    """The architecture."""

    describe = staticmethod(read)
