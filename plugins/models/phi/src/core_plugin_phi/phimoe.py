"""Phi-3.5-MoE: Llama's decoder with layer norms, and a mixture of experts that SparseMixer routes in every layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from core_plugin_decoder import Attention, CausalLM, Decoder, Fields, Layer, Mixture, Norm, shape_of

from core.api import CheckpointError, Routing, config_object

if TYPE_CHECKING:
    from torch import Tensor

    from core.api import LayerBuilder

_CHOSEN = 2
"""Experts of a token: SparseMixer chooses two."""

_THETA = 1000000.0


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration."""
    given = Fields({"num_key_value_heads": 8, **_one_magnitude(config)}, "PhimoeForCausalLM")
    given.expect("num_experts_per_tok", _CHOSEN)
    rope, size, eps = given.rope(theta=_THETA), given.head_dim(), given.number("rms_norm_eps", 1e-5, least=0.0)
    bias, window = given.flag("attention_bias"), given.window()
    layer = Layer(
        attention=Attention(
            heads=given.heads(),
            kv_heads=given.kv_heads(),
            head_dim=size,
            scale=size**-0.5,
            bias=bias,
            output_bias=bias,
            rope=rope,
            window=None if window is None or window >= rope.context else window,
        ),
        mlp=_mixture(given),
        before_attention=Norm(name="input_layernorm", kind="layer", eps=eps, bias=True),
        before_mlp=Norm(name="post_attention_layernorm", kind="layer", eps=eps, bias=True),
    )
    return Decoder(
        vocab_size=given.integer("vocab_size"),
        hidden_size=given.integer("hidden_size"),
        layers=(layer,) * given.layers(),
        final_norm=Norm(name="norm", kind="layer", eps=eps, bias=True),
        max_positions=rope.context,
        dtype=given.dtype(),
        tied=given.flag("tie_word_embeddings"),
        head_bias=given.flag("lm_head_bias"),
        pooling=given.pooling(),
        causal=given.causal,
    )


def _mixture(given: Fields) -> Mixture:
    experts = given.integer("num_local_experts", 16)
    jitter = given.number("router_jitter_noise", 0.01, least=0.0)
    return Mixture(
        experts=experts,
        size=given.integer("intermediate_size"),
        routing=Routing(top_k=_CHOSEN),
        activation=given.text("hidden_act", "silu"),
        name="block_sparse_moe",
        parts=("w1", "w3"),
        down="w2",
        chooses=lambda build, hidden_size, path: SparseMixer(build, hidden_size, experts, path, jitter),
    )


def _one_magnitude(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a configuration whose LongRoPE has its factor of sines and cosines under today's name.

    Raises:
        CheckpointError: CORE-M126, there is one for short contexts and another one for long contexts.
    """
    key = "rope_scaling" if config_object(config, "rope_scaling") else "rope_parameters"
    scaling = dict(config_object(config, key))
    short, long = scaling.pop("short_mscale", None), scaling.pop("long_mscale", None)
    if short != long:
        raise CheckpointError("CORE-M126", f"'short_mscale' is {short!r:.20}, 'long_mscale' another: {long!r:.20}.")
    return config if short is None else {**config, key: {**scaling, "attention_factor": short}}


class SparseMixer:
    """A router that chooses two experts, one after the other.

    The weight of each is its share of a softmax over the experts that are left and whose logits come near its own:
    nearer than twice `jitter`, as a part of the greater magnitude.

    Filled from `<path>.weight (experts, hidden_size)`.
    """

    def __init__(self, build: LayerBuilder, hidden_size: int, experts: int, path: str, jitter: float) -> None:
        self.logits, self.jitter = build.linear(hidden_size, experts, path), jitter

    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """`(T, hidden) -> weights (T, 2) float32, ids (T, 2) int32`."""
        import torch

        logits = self.logits(x).float()
        weights, ids, left = [], [], logits
        for _ in range(_CHOSEN):
            best, chosen = left.max(-1, keepdim=True)
            far = (best - logits) / logits.abs().clamp(min=best) > 2 * self.jitter
            weights.append(left.masked_fill(far, -torch.inf).softmax(-1).gather(-1, chosen))
            ids.append(chosen)
            left = left.scatter(-1, chosen, -torch.inf)
        return torch.cat(weights, -1), torch.cat(ids, -1).int()


shape = shape_of(read)


class PhiMoE(CausalLM):
    """The architecture."""

    describe = staticmethod(read)
