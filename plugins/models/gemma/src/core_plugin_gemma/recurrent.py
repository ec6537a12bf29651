"""RecurrentGemma: recurrent blocks of Griffin, and attention to a sliding window in every third layer."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from core_plugin_decoder import (
    MLP,
    Attention,
    CausalLM,
    Decoder,
    Fields,
    Layer,
    Norm,
    Recurrence,
    shape_of,
)

from core.api import CheckpointError, RopeConfig

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from core.api import LayerBuilder, StepInputs

RECURRENT, ATTENTION = "recurrent", "attention"
_BLOCK = "temporal_block"
_GATES = ("input_gate", "recurrent_gate")


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration."""
    given = Fields(config, "RecurrentGemmaForCausalLM", {"sliding_window": "attention_window_size"})
    hidden, eps = given.integer("hidden_size"), given.number("rms_norm_eps", 1e-6, least=0.0)
    rope = given.rope(hidden // given.heads(), partial=0.5)
    blocks: dict[str, Attention | Recurrence] = {RECURRENT: _recurrent(given), ATTENTION: _attention(given, rope)}
    mlp = MLP(
        size=given.integer("intermediate_size") // 2,
        activation=given.text("hidden_activation", "gelu_pytorch_tanh"),
        name="mlp_block",
        bias=True,
        down_bias=True,
    )
    layers = tuple(
        Layer(
            attention=blocks[kind],
            mlp=mlp,
            before_attention=Norm(name="temporal_pre_norm", eps=eps, offset=1.0),
            before_mlp=Norm(name="channel_pre_norm", eps=eps, offset=1.0),
        )
        for kind in _kinds(given)
    )
    return Decoder(
        vocab_size=given.integer("vocab_size"),
        hidden_size=hidden,
        layers=layers,
        final_norm=Norm(name="final_norm", eps=eps, offset=1.0),
        max_positions=given.positions(8192),
        dtype=given.dtype(),
        embed_scale=_bfloat16(hidden**0.5),
        tied=given.flag("tie_word_embeddings", default=True),
        softcap=given.number("logits_soft_cap", 30.0, least=1e-6),
        transposes=tuple(f"*.rg_lru.*.{gate}.weight" for gate in _GATES),
        experts=tuple(
            (f".rg_lru.{gate}_{part}", f".rg_lru.{{}}.{gate}.{part}") for gate in _GATES for part in ("weight", "bias")
        ),
    )


shape = shape_of(read)


class RecurrentGemma(CausalLM):
    """The architecture."""

    describe = staticmethod(read)


def _bfloat16(value: float) -> float:
    """Return the nearest number of bfloat16: checkpoints were trained with a factor that is one."""
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
    return float(struct.unpack("<f", struct.pack("<I", rounded))[0])


def _kinds(given: Fields) -> tuple[str, ...]:
    """Return the block of each layer: `block_types`, again and again."""
    blocks = given.config.get("block_types") or (RECURRENT, RECURRENT, ATTENTION)
    if not isinstance(blocks, list | tuple) or not set(blocks) <= {RECURRENT, ATTENTION}:
        raise CheckpointError("CORE-M126", f"'block_types' must name blocks as {RECURRENT} or {ATTENTION}.")
    return tuple(blocks[index % len(blocks)] for index in range(given.layers()))


def _attention(given: Fields, rope: RopeConfig) -> Attention:
    return Attention(
        heads=given.heads(),
        kv_heads=given.kv_heads(),
        head_dim=rope.head_dim,
        scale=rope.head_dim**-0.5,
        name=_BLOCK,
        bias=given.flag("attention_bias"),
        output_bias=True,
        rope=rope,
        window=given.integer("sliding_window", 2048),
    )


def _recurrent(given: Fields) -> Recurrence:
    hidden = ("hidden_size", given.integer("hidden_size"))
    channels, heads, width = given.integer("lru_width", hidden[1]), given.heads(), given.integer("conv1d_width", 4)
    if channels % heads:
        text = f"'lru_width' is {channels}, which {heads} heads ('num_attention_heads') cannot divide."
        raise CheckpointError("CORE-M126", text)
    wide = ("lru_width", channels)
    weights = (
        ("linear_x", (wide, hidden)),
        ("linear_y", (wide, hidden)),
        ("linear_out", (hidden, wide)),
        ("conv_1d", (wide, ("1", 1), ("conv1d_width", width))),
    )
    activation = given.text("hidden_activation", "gelu_pytorch_tanh")
    made = partial(_made, channels=channels, heads=heads, width=width, activation=activation)
    return Recurrence(name=_BLOCK, make=made, weights=weights)


def _made(
    build: LayerBuilder, hidden_size: int, path: str, *, channels: int, heads: int, width: int, activation: str
) -> Callable[[Tensor, StepInputs], Tensor]:
    from core_plugin_gemma.griffin import RecurrentBlock

    return RecurrentBlock(build, hidden_size, path, channels, heads, width, activation)
