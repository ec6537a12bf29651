"""MPT: ALiBi or learned positions, no biases, one tensor for queries, keys and values that may be clipped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core_plugin_decoder import (
    MLP,
    Attention,
    CausalLM,
    Decoder,
    Fields,
    HeadNorm,
    Layer,
    Learned,
    Norm,
    alibi_slopes,
    shape_of,
)

from core.api import CheckpointError, config_object

_KEYS = {
    "hidden_size": "d_model",
    "num_hidden_layers": "n_layers",
    "num_attention_heads": "n_heads",
    "max_position_embeddings": "max_seq_len",
}
_NORMS = ("layernorm", "low_precision_layernorm")


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration."""
    given = Fields(config, "MPTForCausalLM", _KEYS)
    inner = Fields(config_object(config, "attn_config"))
    _refuse(given, inner)
    positions, alibi = given.positions(), inner.flag("alibi", default=True)
    learned = not alibi and given.flag("learned_pos_emb", default=True)
    return Decoder(
        vocab_size=given.integer("vocab_size"),
        hidden_size=given.integer("hidden_size"),
        layers=(_layer(given, inner),) * given.layers(),
        final_norm=_norm(given, "norm_f"),
        max_positions=positions,
        dtype=given.dtype(),
        root="transformer",
        layer="blocks.{}",
        embed="wte",
        learned=Learned(name="wpe", rows=positions) if learned else None,
        tied=given.flag("tie_word_embeddings", default=True),
        logit_scale=_logit_scale(given),
        causal=given.causal,
        pooling=given.pooling(),
        layers_key=given.key("num_hidden_layers"),
    )


def _refuse(given: Fields, inner: Fields) -> None:
    """Raise an error for what is not supported."""
    inner.refuse("rope", "prefix_lm", "attn_uses_sequence_id", "qk_gn")
    window = inner.config.get("sliding_window_size", -1)
    if window not in (-1, None):
        raise CheckpointError("CORE-M126", f"'sliding_window_size' is {window!r:.60}, which is not supported.")
    kind = given.text("norm_type", _NORMS[0])
    if kind.lower() not in _NORMS:
        raise CheckpointError("CORE-M126", f"'norm_type' is {kind!r:.60}; supported: {', '.join(_NORMS)}.")
    ffn = Fields(config_object(given.config, "ffn_config")).text("ffn_type", "mptmlp")
    if ffn != "mptmlp":
        raise CheckpointError("CORE-M126", f"'ffn_type' is {ffn!r:.60}; supported: mptmlp.")


def _biased(given: Fields) -> bool:
    return not given.flag("no_bias", default=True)


def _norm(given: Fields, name: str) -> Norm:
    eps = given.number("layer_norm_epsilon", 1e-5, least=0.0)
    return Norm(name=name, kind="layer", eps=eps, bias=_biased(given))


def _kv_heads(given: Fields, inner: Fields) -> int:
    kind = inner.text("attn_type", "multihead_attention")
    counts = {"multihead_attention": given.heads(), "multiquery_attention": 1}
    if kind == "grouped_query_attention":
        counts[kind] = inner.integer("kv_n_heads", most=given.heads())
    if kind not in counts or given.heads() % counts[kind]:
        raise CheckpointError("CORE-M126", f"'attn_type' is {kind!r:.60} for {given.heads()} heads: not supported.")
    return counts[kind]


def _layer(given: Fields, inner: Fields) -> Layer:
    heads, head_dim, bias = given.heads(), given.head_dim(), _biased(given)
    normed = inner.flag("qk_ln")
    steepest = inner.number("alibi_bias_max", 8.0, least=1e-6)
    attention = Attention(
        name="attn",
        heads=heads,
        kv_heads=_kv_heads(given, inner),
        head_dim=head_dim,
        scale=inner.maybe("softmax_scale") or head_dim**-0.5,
        fused="Wqkv",
        output="out_proj",
        bias=bias,
        output_bias=bias,
        clip=inner.maybe("clip_qkv"),
        q_norm=HeadNorm(norm=_norm(given, "q_ln"), over="all") if normed else None,
        k_norm=HeadNorm(norm=_norm(given, "k_ln"), over="all") if normed else None,
        slopes=alibi_slopes(heads, steepest) if inner.flag("alibi", default=True) else None,
    )
    mlp = MLP(
        size=given.integer("expansion_ratio", 4) * given.integer("hidden_size"),
        activation="gelu",
        name="ffn",
        gate=None,
        bias=bias,
        down_bias=bias,
    )
    norms = _norm(given, "norm_1"), _norm(given, "norm_2")
    return Layer(attention=attention, mlp=mlp, before_attention=norms[0], before_mlp=norms[1])


def _logit_scale(given: Fields) -> float:
    if given.config.get("logit_scale") == "inv_sqrt_d_model":
        return float(given.integer("hidden_size") ** -0.5)
    return given.number("logit_scale", 1.0)


shape = shape_of(read)


class MPT(CausalLM):
    """The architecture."""

    describe = staticmethod(read)
