"""Baichuan: Llama's decoder with one projection for queries, keys and values; the larger one with ALiBi."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from core_plugin_decoder import MLP, Attention, CausalLM, Decoder, Fields, Layer, Norm, shape_of

from core.api import MOST_POSITIONS, CheckpointError

_UNIT_HEAD_VOCABULARY, _ALIBI_HIDDEN = 125696, 5120


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration."""
    given = Fields(config, "BaichuanForCausalLM")
    vocabulary = given.integer("vocab_size")
    if vocabulary == _UNIT_HEAD_VOCABULARY:
        text = f"'vocab_size' is {vocabulary}: Baichuan 2, whose head has rows of length 1, is not supported."
        raise CheckpointError("CORE-M126", text)
    positions = given.integer("max_position_embeddings", given.integer("model_max_length", 4096), most=MOST_POSITIONS)
    eps, alibi = given.number("rms_norm_eps", 1e-6, least=0.0), _alibi(given)
    rope = None if alibi else Fields({**config, "max_position_embeddings": positions}).rope(given.head_dim())
    layer = Layer(
        attention=Attention(
            heads=given.heads(),
            kv_heads=given.heads(),
            head_dim=given.head_dim(),
            scale=given.head_dim() ** -0.5,
            # Files of other layouts have the parts.
            fused="W_pack" if given.flag("qkv_fused", default=True) else None,
            rope=rope,
            slopes=slopes(given.heads()) if alibi else None,
        ),
        mlp=MLP(size=given.integer("intermediate_size"), activation=given.text("hidden_act", "silu")),
        before_attention=Norm(name="input_layernorm", eps=eps),
        before_mlp=Norm(name="post_attention_layernorm", eps=eps),
    )
    return Decoder(
        vocab_size=vocabulary,
        hidden_size=given.integer("hidden_size"),
        layers=(layer,) * given.layers(),
        final_norm=Norm(name="norm", eps=eps),
        max_positions=positions if rope is None else rope.context,
        dtype=given.dtype(),
        tied=given.flag("tie_word_embeddings"),
    )


def _alibi(given: Fields) -> bool:
    """Return whether positions are biases of the scores; configurations say it by their size alone."""
    if given.architecture == "BaiChuanForCausalLM":
        return False
    named = given.text("position_embedding", "ALIBI" if given.integer("hidden_size") == _ALIBI_HIDDEN else "ROPE")
    if named not in ("ALIBI", "ROPE"):
        raise CheckpointError("CORE-M126", f"'position_embedding' is {named!r:.40}, not ALIBI or ROPE.")
    return named == "ALIBI"


def slopes(heads: int) -> tuple[float, ...]:
    """Return ALiBi's slopes: powers of 2, and between them those of twice as many heads, every other one."""
    whole = 2 ** int(math.log2(heads))
    first = [2 ** (-8 * (head + 1) / whole) for head in range(whole)]
    return (*first, *(2 ** (-4 * (2 * head + 1) / whole) for head in range(heads - whole)))


shape = shape_of(read)


class Baichuan(CausalLM):
    """The architecture."""

    describe = staticmethod(read)
