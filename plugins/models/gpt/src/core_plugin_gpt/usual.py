"""Parts that GPT-2 and its kin have in common: names of keys, of modules, and the layers around attention."""

from __future__ import annotations

from collections.abc import Sequence

from core_plugin_decoder import MLP, Decoder, Fields, Layer, Learned, Norm

KEYS = {
    "hidden_size": "n_embd",
    "intermediate_size": "n_inner",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "max_position_embeddings": "n_positions",
    "hidden_act": "activation_function",
    "layer_norm_eps": "layer_norm_epsilon",
}
"""Usual keys -> those of GPT-2."""

MASKS = ("*.attn.bias", "*.attn.masked_bias")
"""Causal masks, which old checkpoints store."""

TRANSPOSED = ("*.c_attn.weight", "*.c_proj.weight", "*.c_fc.weight", "*.c_fc2.weight")
"""Matrices of GPT-2, which are stored as `(in, out)`."""


def layer_norm(given: Fields, name: str) -> Norm:
    """Return a layer norm with weight and bias."""
    return Norm(name=name, kind="layer", eps=given.number("layer_norm_eps", 1e-5, least=0.0), bias=True)


def wide(given: Fields, names: tuple[str, str], activation: str = "gelu_new") -> MLP:
    """Return an MLP without a gate, by default four times as wide as hidden states.

    Args:
        names: Modules of its linears.
        activation: Where the configuration names none.
    """
    return MLP(
        size=given.integer("intermediate_size", 4 * given.integer("hidden_size")),
        activation=given.text("hidden_act", activation),
        gate=None,
        up=names[0],
        down=names[1],
        bias=True,
        down_bias=True,
    )


def scale_of(given: Fields, index: int = 0) -> float:
    """Return the factor of the scores of a layer."""
    scale = given.head_dim() ** -0.5 if given.flag("scale_attn_weights", default=True) else 1.0
    return scale / (index + 1) if given.flag("scale_attn_by_inverse_layer_idx") else scale


def decoder_of(
    given: Fields,
    layers: Sequence[Layer],
    *,
    learned: bool = True,
    tied: bool = True,
    head_bias: bool = False,
    transposes: tuple[str, ...] = (),
    embed_scale: float = 1.0,
    logit_scale: float = 1.0,
) -> Decoder:
    """Return a decoder with GPT-2's names around the layers.

    Args:
        learned: Whether positions are learned.
        tied: Whether the head is, where the configuration does not say so.
    """
    positions = given.positions(1024)
    return Decoder(
        vocab_size=given.integer("vocab_size"),
        hidden_size=given.integer("hidden_size"),
        layers=tuple(layers),
        final_norm=layer_norm(given, "ln_f"),
        max_positions=positions,
        dtype=given.dtype("float32"),
        root="transformer",
        layer="h.{}",
        embed="wte",
        embed_scale=embed_scale,
        learned=Learned(name="wpe", rows=positions) if learned else None,
        head_bias=head_bias,
        tied=given.flag("tie_word_embeddings", default=tied),
        logit_scale=logit_scale,
        causal=given.causal,
        pooling=given.pooling(),
        skips=MASKS,
        transposes=transposes,
        layers_key=given.key("num_hidden_layers"),
    )
