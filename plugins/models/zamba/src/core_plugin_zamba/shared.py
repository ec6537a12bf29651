"""The transformer blocks of Zamba2, each of which several layers use: with adapters, keys and values of their own.

Shapes: T tokens of a step; D hidden size; H query heads and K heads of keys and values, of a rank; F inner size of the
MLP, on a rank.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from core.api import LayerBuilder, StepInputs
    from core_plugin_zamba.blocks import Block

_PROJECTIONS = ("q_proj", "k_proj", "v_proj")
_ADAPTERS = ("linear_q_adapter_list", "linear_k_adapter_list", "linear_v_adapter_list")


class SharedBlock:
    """Parts of a block that all of its uses share.

    Args:
        path: Of the block, in the layer that uses it first.
    """

    def __init__(self, given: Block, build: LayerBuilder, hidden_size: int, path: str) -> None:
        self.given, self.build, self.hidden_size, self.path = given, build, hidden_size, path
        wide, size = 2 * hidden_size, given.head_dim
        self.share = build.heads(given.heads, given.kv_heads)
        self.norm = build.rms_norm(wide, given.eps, f"{path}.input_layernorm")
        rows = (given.heads * size, given.kv_heads * size, given.kv_heads * size)
        self.project = build.merged_linear(
            wide,
            dict(zip(_PROJECTIONS, rows, strict=True)),
            f"{path}.self_attn",
            shard="out",
            units=dict.fromkeys(_PROJECTIONS, size),
        )
        self.rope = None if given.rope is None else build.rope(given.rope)
        self.output = build.linear(given.heads * size, hidden_size, f"{path}.self_attn.o_proj", shard="in")
        self.norm_mlp = build.rms_norm(hidden_size, given.eps, f"{path}.pre_ff_layernorm")
        self.widen = build.merged_linear(
            hidden_size,
            dict.fromkeys(("gate", "up"), given.size),
            f"{path}.feed_forward",
            bias=given.bias,
            shard="out",
            fused="gate_up_proj",
        )
        self.activation = build.gated_activation(given.activation)
        self.down = build.linear(given.size, hidden_size, f"{path}.feed_forward.down_proj", bias=given.bias, shard="in")

    def use(self, number: int, layer: int, linear: str) -> BlockUse:
        """Return one use of it.

        Args:
            number: Of the use, among those of all blocks.
            layer: Whose keys and values it has.
            linear: Path of the linear behind it.
        """
        return BlockUse(self, number, layer, linear)


class BlockUse:
    """`linear(mlp(norm(attention(norm([residual, embedded])))))`; nothing in it adds to a residual."""

    def __init__(self, block: SharedBlock, number: int, layer: int, linear: str) -> None:
        given, build, path = block.given, block.build, block.path
        self.block, share = block, block.share
        self.heads, self.size = [share.heads, share.kv_heads, share.kv_heads], given.head_dim
        self.adapters = _QueryAdapters(block, number) if given.adapts else None
        self.attend = build.attention(
            layer,
            num_heads=share.heads,
            num_kv_heads=share.kv_heads,
            head_dim=given.head_dim,
            scale=(given.head_dim / 2) ** -0.5,
            prefix=f"{path}.self_attn",
        )
        adapter = f"{path}.feed_forward.gate_up_proj_adapter_list.{number}"
        self.narrow = build.linear(block.hidden_size, given.rank, f"{adapter}.0")
        self.widen = build.merged_linear(
            given.rank, dict.fromkeys(("gate", "up"), given.size), adapter, shard="out", fused="1"
        )
        self.linear = build.linear(block.hidden_size, block.hidden_size, linear)

    def __call__(self, residual: Tensor, embedded: Tensor, step: StepInputs) -> Tensor:
        """`(T, D)`, twice, `-> (T, D)`."""
        block = self.block
        hidden = block.norm(torch.cat((residual, embedded), -1))
        x = block.norm_mlp(block.output(self._attended(hidden, step)))
        wide = block.widen(x) + self.widen(self.narrow(x))
        return self.linear(block.down(block.activation(wide)))

    def _attended(self, hidden: Tensor, step: StepInputs) -> Tensor:
        """`(T, 2 * D) -> (T, H * head_dim)`."""
        joined = self.block.project(hidden)
        if self.adapters is not None:
            joined = joined + self.adapters(hidden)
        q, k, v = joined.view(-1, sum(self.heads), self.size).split_with_sizes(self.heads, dim=1)
        return self.attend(q, k, v, step, rope=self.block.rope)


class _QueryAdapters:
    """Adapters of a use, added to queries, keys and values, each a product of two narrow matrices."""

    def __init__(self, block: SharedBlock, number: int) -> None:
        given, build, path = block.given, block.build, f"{block.path}.self_attn"
        wide, rank, unit = 2 * block.hidden_size, given.rank, {"1": given.head_dim}
        parts = {f"{name}.{number}.0": rank for name in _ADAPTERS}
        self.narrow, self.ranks = build.merged_linear(wide, parts, path), (rank,) * len(parts)
        # One to each: the matrices of queries read nothing of what those of keys read.
        self.widen = [
            build.merged_linear(rank, {"1": wide}, f"{path}.{name}.{number}", shard="out", units=unit)
            for name in _ADAPTERS
        ]

    def __call__(self, hidden: Tensor) -> Tensor:
        """`(T, 2 * D) -> (T, (H + 2 * K) * head_dim)`."""
        parts = self.narrow(hidden).split_with_sizes(self.ranks, dim=1)
        return torch.cat([widen(part.contiguous()) for widen, part in zip(self.widen, parts, strict=True)], -1)
