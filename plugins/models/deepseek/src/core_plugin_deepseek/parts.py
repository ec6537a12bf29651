"""Parts that all of these decoders have in common: norms, dense layers, experts and which layers have them."""

from __future__ import annotations

from collections.abc import Sequence

from core_plugin_decoder import MLP, Attention, Decoder, Fields, LatentAttention, Layer, Mixture, Norm

from core.api import MOST_LAYERS, CheckpointError, Routing, config_names


def decoder_of(
    given: Fields,
    attentions: Sequence[Attention | LatentAttention],
    experts: Mixture | None,
    max_positions: int,
    *,
    skips: tuple[str, ...] = (),
) -> Decoder:
    """Return a decoder with these experts in some layers.

    Args:
        attentions: Of each layer.
        experts: None: all layers are dense.
        skips: As in `Decoder`.
    """
    eps = given.number("rms_norm_eps", 1e-6, least=0.0)
    dense = _mlp(given, given.integer("intermediate_size"), "mlp")
    layers = tuple(
        Layer(
            attention=attention,
            mlp=experts if sparse and experts is not None else dense,
            before_attention=Norm(name="input_layernorm", eps=eps),
            before_mlp=Norm(name="post_attention_layernorm", eps=eps),
        )
        for attention, sparse in zip(attentions, _sparse(given), strict=True)
    )
    return Decoder(
        vocab_size=given.integer("vocab_size"),
        hidden_size=given.integer("hidden_size"),
        layers=layers,
        final_norm=Norm(name="norm", eps=eps),
        max_positions=max_positions,
        dtype=given.dtype(),
        tied=given.flag("tie_word_embeddings"),
        pooling=given.pooling(),
        causal=given.causal,
        skips=skips,
    )


def _sparse(given: Fields) -> tuple[bool, ...]:
    """Return which layers have experts: those that are named, or every so many-th behind the first dense ones."""
    named, count = config_names(given.config, "mlp_layer_types"), given.layers()
    if named is not None:
        if len(named) != count or not set(named) <= {"dense", "sparse"}:
            raise CheckpointError("CORE-M126", f"'mlp_layer_types' must name {count} layers as dense or sparse.")
        return tuple(one == "sparse" for one in named)
    first = int(given.number("first_k_dense_replace", 0, least=0, most=MOST_LAYERS))
    every = given.integer("moe_layer_freq", 1)
    return tuple(index >= first and index % every == 0 for index in range(count))


def _mlp(given: Fields, size: int, name: str) -> MLP:
    bias = given.flag("mlp_bias")
    return MLP(size=size, activation=given.text("hidden_act", "silu"), name=name, bias=bias, down_bias=bias)


def mixture(given: Fields, routing: Routing) -> Mixture:
    """Return the experts of a layer, and the MLP that all tokens share."""
    size, shared = given.integer("moe_intermediate_size"), given.number("n_shared_experts", 0, least=0, most=1024)
    return Mixture(
        experts=given.integer("n_routed_experts"),
        size=size,
        routing=routing,
        activation=given.text("hidden_act", "silu"),
        correction="gate.e_score_correction_bias" if routing.correction else None,
        shared=_mlp(given, int(shared) * size, "shared_experts") if shared else None,
    )
