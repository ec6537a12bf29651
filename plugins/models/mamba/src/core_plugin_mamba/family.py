"""Mamba and FalconMamba: nothing but state spaces, one in each layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core_plugin_decoder import UNLIMITED, CausalLM, Decoder, Fields, Layer, Mamba, Norm, Recurrence, shape_of


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration."""
    given = Fields(config, "MambaForCausalLM")
    given.expect("hidden_act", "silu")
    size, bias = given.integer("hidden_size"), given.flag("use_bias")
    norms = None
    if given.architecture.startswith("FalconMamba"):
        eps = given.number("mixer_rms_eps", 1e-6, least=0.0)
        step, b, c = (Norm(name=f"{part}_layernorm", eps=eps, weight=False) for part in ("dt", "b", "c"))
        norms = (step, b, c)
    rank = given.config.get("time_step_rank", "auto")
    mixer = Mamba(
        channels=given.integer("intermediate_size", given.integer("expand", 2) * size),
        state_dim=given.integer("state_size", 16),
        rank=-(-size // 16) if rank == "auto" else given.integer("time_step_rank"),
        width=given.integer("conv_kernel", 4),
        bias=bias,
        conv_bias=given.flag("use_conv_bias", default=True),
        norms=norms,
    )
    return backbone(given, mixer.recurrence(size), tied=True)


def backbone(given: Fields, mixer: Recurrence, *, tied: bool) -> Decoder:
    """Describe a decoder whose layers have one mixer each, and nothing else.

    Args:
        tied: Whether embedding and output projection are one where the configuration does not say.
    """
    eps = given.number("layer_norm_epsilon", 1e-5, least=0.0)
    layer = Layer(attention=mixer, mlp=None, before_attention=Norm(name="norm", eps=eps))
    return Decoder(
        vocab_size=given.integer("vocab_size"),
        hidden_size=given.integer("hidden_size"),
        layers=(layer,) * given.layers(),
        final_norm=Norm(name="norm_f", eps=eps),
        max_positions=given.positions(UNLIMITED),
        dtype=given.dtype(),
        root="backbone",
        embed="embeddings",
        tied=given.flag("tie_word_embeddings", default=tied),
        renames=(("backbone.embedding.", "backbone.embeddings."),),
    )


shape = shape_of(read)


class MambaLM(CausalLM):
    """The architectures."""

    describe = staticmethod(read)
