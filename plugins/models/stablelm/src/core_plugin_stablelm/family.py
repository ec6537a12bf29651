"""StableLM: layer norms, a quarter of each head rotated, perhaps attention and MLP side by side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core_plugin_decoder import MLP, Attention, CausalLM, Decoder, Fields, HeadNorm, Layer, Norm, shape_of


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration."""
    given = Fields(config, "StableLmForCausalLM")
    # The older spelling of the architecture comes with older spellings of two keys.
    partial = given.number("rope_pct", 0.25, least=0.0, most=1.0)
    eps = given.number("layer_norm_eps", given.number("norm_eps", 1e-5, least=0.0), least=0.0)
    rope, size = given.rope(partial=partial), given.head_dim()
    parallel, normed = given.flag("use_parallel_residual"), given.flag("qk_layernorm")

    def norm(name: str) -> Norm:
        return Norm(name=name, kind="layer", eps=eps, bias=True)

    def head_norm(name: str) -> HeadNorm | None:
        bare = Norm(name=name, kind="layer", eps=eps)
        return HeadNorm(norm=bare, over="own", stacked=f"{name}.norms.{{}}") if normed else None

    layer = Layer(
        attention=Attention(
            heads=given.heads(),
            kv_heads=given.kv_heads(32),
            head_dim=size,
            scale=size**-0.5,
            bias=given.flag("use_qkv_bias"),
            rope=rope,
            q_norm=head_norm("q_layernorm"),
            k_norm=head_norm("k_layernorm"),
        ),
        mlp=MLP(size=given.integer("intermediate_size"), activation=given.text("hidden_act", "silu")),
        before_attention=norm("input_layernorm"),
        before_mlp=None if parallel else norm("post_attention_layernorm"),
        parallel=parallel,
    )
    return Decoder(
        vocab_size=given.integer("vocab_size"),
        hidden_size=given.integer("hidden_size"),
        layers=(layer,) * given.layers(),
        final_norm=norm("norm"),
        max_positions=rope.context,
        dtype=given.dtype(),
        tied=given.flag("tie_word_embeddings"),
        pooling=given.pooling(),
        causal=given.causal,
    )


shape = shape_of(read)


class StableLM(CausalLM):
    """The architecture."""

    describe = staticmethod(read)
