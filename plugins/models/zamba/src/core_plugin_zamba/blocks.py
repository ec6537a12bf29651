"""The transformer blocks of Zamba2, as data. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from core_plugin_decoder import Fields

from core.api import CheckpointError, RopeConfig

Dim = tuple[str, int]

_LONG = 16384
"""Context in tokens of a configuration that asks for a long one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A block: attention to hidden states beside embeddings, and an MLP. Its sizes are those of all blocks.

    Attributes:
        heads, kv_heads, head_dim: Of the attention; all query heads are twice as wide as the hidden size.
        size: Inner size of the MLP.
        bias: Whether the linears of the MLP have one.
        rank: Inner size of the adapters, of which each use of a block has its own.
        adapts: Whether queries, keys and values have adapters; the MLP always has.
        rope: None: nothing is rotated.
        max_positions: Longest context in tokens.
    """

    heads: int
    kv_heads: int
    head_dim: int
    size: int
    activation: str
    bias: bool
    eps: float
    rank: int
    adapts: bool
    rope: RopeConfig | None
    max_positions: int

    def weights(self, hidden_size: int) -> dict[str, tuple[Dim, ...]]:
        """Return module -> dimensions of its weight; of modules that all uses share."""
        hidden, wide = ("hidden_size", hidden_size), ("2 * hidden_size", 2 * hidden_size)
        queries = ("num_attention_heads * attention_head_dim", self.heads * self.head_dim)
        keys = ("num_key_value_heads * attention_head_dim", self.kv_heads * self.head_dim)
        return {
            "input_layernorm": (wide,),
            "pre_ff_layernorm": (hidden,),
            "self_attn.q_proj": (queries, wide),
            "self_attn.k_proj": (keys, wide),
            "self_attn.v_proj": (keys, wide),
            "self_attn.o_proj": (hidden, queries),
            "feed_forward.gate_up_proj": (("2 * intermediate_size", 2 * self.size), hidden),
            "feed_forward.down_proj": (hidden, ("intermediate_size", self.size)),
        }


def fields(config: Mapping[str, Any]) -> Fields:
    """Return the configuration."""
    long = {"max_position_embeddings": _LONG} if config.get("use_long_context") else {}
    return Fields({"max_position_embeddings": 4096, **config, **long}, "Zamba2ForCausalLM")


def block_of(given: Fields) -> Block:
    """Return what the blocks are."""
    wide, heads, kv_heads = 2 * given.integer("hidden_size"), given.heads(), given.kv_heads()
    adapts, size = given.flag("use_shared_attention_adapter"), wide // heads
    if wide % heads:
        text = f"'num_attention_heads' is {heads}, which does not divide twice the hidden size, {wide}."
        raise CheckpointError("CORE-M126", text)
    if adapts and kv_heads != heads:
        text = f"'num_key_value_heads' is {kv_heads}: adapters of attention need as many as query heads, {heads}."
        raise CheckpointError("CORE-M126", text)
    rope = given.rope(size) if given.flag("use_mem_rope") else None
    return Block(
        heads=heads,
        kv_heads=kv_heads,
        head_dim=size,
        size=given.integer("intermediate_size", 2 * wide),
        activation=given.text("hidden_act", "gelu"),
        bias=given.flag("add_bias_linear"),
        eps=given.number("rms_norm_eps", 1e-5, least=0.0),
        rank=given.integer("adapter_rank", 128),
        adapts=adapts,
        rope=rope,
        max_positions=given.positions() if rope is None else rope.context,
    )
