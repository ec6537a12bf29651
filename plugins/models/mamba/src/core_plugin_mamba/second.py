"""Mamba-2: nothing but state spaces of heads, one in each layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core_plugin_decoder import CausalLM, Decoder, Fields, Mamba2, Norm, shape_of, step_limits

from core.api import CheckpointError
from core_plugin_mamba.family import backbone


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration."""
    given = Fields(config, "Mamba2ForCausalLM")
    given.expect("hidden_act", "silu")
    size, bias, groups = given.integer("hidden_size"), given.flag("use_bias"), given.integer("n_groups", 8)
    mixer = Mamba2(
        heads=given.integer("num_heads", 128),
        head_dim=given.integer("head_dim", 64),
        groups=groups,
        state_dim=given.integer("state_size", 128),
        width=given.integer("conv_kernel", 4),
        bias=bias,
        output_bias=bias,
        conv_bias=given.flag("use_conv_bias", default=True),
        limits=step_limits(config),
        norm=Norm(name="norm", eps=given.number("layer_norm_epsilon", 1e-5, least=0.0), groups=groups),
    )
    inner = given.integer("expand", 2) * size
    if mixer.channels != inner:
        text = f"'num_heads' {mixer.heads} times 'head_dim' {mixer.head_dim} is not the inner size, {inner}."
        raise CheckpointError("CORE-M126", text)
    return backbone(given, mixer.recurrence(size), tied=False)


shape = shape_of(read)


class Mamba2LM(CausalLM):
    """The architecture."""

    describe = staticmethod(read)
