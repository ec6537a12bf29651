"""Configuration keys and orders of rows of linear attention and short convolutions, from GGUF metadata. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from core_plugin_gguf.faults import damaged
from core_plugin_gguf.reads import FULL
from core_plugin_gguf.rows import Dealt, Layout, Together
from core_plugin_gguf.states import has, sizes, where

if TYPE_CHECKING:
    from core_plugin_gguf.architecture import Facts, MakeLayout
    from core_plugin_gguf.header import Header

LINEAR = "linear_attention"


@dataclass(frozen=True, slots=True)
class Delta:
    """Sizes of a gated delta rule: heads of keys and of values, and numbers of a head of either."""

    key_heads: int
    heads: int
    key: int
    value: int

    @staticmethod
    def of(header: Header, arch: str) -> Delta:
        """Read them. Raises `CheckpointError` CORE-M141: one is missing, or they do not go together."""
        key_heads, heads, key, inner = (
            header.positive_integer(f"{arch}.ssm.{name}")
            for name in ("group_count", "time_step_rank", "state_size", "inner_size")
        )
        if heads % key_heads or inner % heads:
            what = f"{inner} numbers of {heads} heads of values do not go with {key_heads} heads of keys"
            raise damaged(header.path, what)
        return Delta(key_heads, heads, key, inner // heads)

    @property
    def keys(self) -> int:
        """Rows of all queries and keys."""
        return 2 * self.key_heads * self.key


def dealt(size: int = 0, *, keys: bool = False, columns: bool = False) -> MakeLayout:
    """Return how heads of values are stored: the first of every head of keys, then the second, and so on.

    Args:
        size: Rows of a head; 0: as many as it has numbers.
        keys: Whether queries and keys stand in front of them.
        columns: Whether they are columns.
    """

    def layout(header: Header, arch: str) -> Layout:
        delta = Delta.of(header, arch)
        first = delta.keys if keys else 0
        return Layout(Dealt(delta.key_heads, size or delta.value, first), columns=columns)

    return layout


def steps(header: Header, arch: str) -> Layout:
    """Corrections and steps of a head of keys together, then those of the next one."""
    delta = Delta.of(header, arch)
    share = delta.heads // delta.key_heads
    parts = (("linear_attn.in_proj_b", delta.heads), ("linear_attn.in_proj_a", delta.heads))
    return Layout(Together(delta.key_heads, (share, share)), parts)


def projections(header: Header, arch: str) -> Layout:
    """Query, key, values and gates of a head of keys together, then those of the next one, as older files have it."""
    delta = Delta.of(header, arch)
    wide, share = delta.heads * delta.value, delta.heads // delta.key_heads * delta.value
    parts = (("linear_attn.in_proj_qkv", delta.keys + wide), ("linear_attn.in_proj_z", wide))
    return Layout(Together(delta.key_heads, (delta.key, delta.key, share, share)), parts)


def delta_rule(facts: Facts) -> Mapping[str, Any]:
    """Sizes of the delta rule, and which layers have one."""
    delta, attends = Delta.of(facts.header, facts.arch), where(facts, "attn_q")
    layers = range(facts.config["num_hidden_layers"])
    return {
        "linear_num_key_heads": delta.key_heads,
        "linear_num_value_heads": delta.heads,
        "linear_key_head_dim": delta.key,
        "linear_value_head_dim": delta.value,
        "linear_conv_kernel_dim": sizes(facts)["width"],
        "layer_types": [FULL if layer in attends else LINEAR for layer in layers],
        "attention_bias": has(facts, "attn_q.bias"),
    }


def short_conv(facts: Facts) -> Mapping[str, Any]:
    """LFM2: which layers attend, and the width of the convolution of the others; sizes of MLPs are the final ones."""
    attends, layers = where(facts, "attn_q"), range(facts.config["num_hidden_layers"])
    return {
        "layer_types": [FULL if layer in attends else "conv" for layer in layers],
        "conv_L_cache": facts.header.positive_integer(facts.key("shortconv.l_cache")),
        "conv_bias": has(facts, "shortconv.conv.bias"),
        "block_auto_adjust_ff_dim": False,
    }


def lfm2_moe(facts: Facts) -> Mapping[str, Any]:
    """LFM2's experts, behind some dense layers; a corrected choice has biases."""
    return {
        "num_dense_layers": facts.header.integer(facts.key("leading_dense_block_count")) or 0,
        "use_expert_bias": has(facts, "exp_probs_b.bias"),
        "norm_topk_prob": True,
    }


def nested(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of Kimi's decays: a number for each head, between ones."""
    return (1, 1, prod(shape), 1)


def kimi_linear(facts: Facts) -> Mapping[str, Any]:
    """Sizes of Kimi's delta rule and latent attention, and which layers have which."""
    header, key, attends = facts.header, facts.key, where(facts, "attn_kv_a_mqa")
    layers, rotated = range(facts.config["num_hidden_layers"]), header.positive_integer(key("rope.dimension_count"))
    size, queries = facts.config["head_dim"], header.integer(key("attention.q_lora_rank"))
    if size <= rotated:
        raise damaged(header.path, f"of the {size} numbers of a head {rotated} are rotated")
    return {
        "layer_types": [FULL if layer in attends else LINEAR for layer in layers],
        "linear_head_dim": header.positive_integer(key("kda.head_dim")),
        "linear_num_heads": facts.config["num_attention_heads"],
        "linear_conv_kernel_dim": header.positive_integer(key("ssm.conv_kernel")),
        "num_key_value_heads": facts.config["num_attention_heads"],
        "head_dim": rotated,
        "kv_lora_rank": header.positive_integer(key("attention.kv_lora_rank")),
        "q_lora_rank": queries or None,
        "qk_nope_head_dim": size - rotated,
        "qk_rope_head_dim": rotated,
        "v_head_dim": header.positive_integer(key("attention.value_length_mla")),
        "norm_topk_prob": header.flag(key("expert_weights_norm")) is not False,
    }


def lightning(facts: Facts) -> Mapping[str, Any]:
    """MiniMax-Text: which layers attend; residuals have one factor, what is added to them has none."""
    attends, layers = where(facts, "attn_q"), range(facts.config["num_hidden_layers"])
    factor = facts.header.positive_number(facts.key("residual_scale"))
    parts = ("linear_attn", "full_attn", "mlp")
    return {
        "layer_types": [FULL if layer in attends else LINEAR for layer in layers],
        **{f"{part}_alpha_factor": factor for part in parts},
        **{f"{part}_beta_factor": 1.0 for part in parts},
    }
