"""Hyper-connections: several hidden states of a token, mixed around each block.

Shapes: T tokens of a step; S streams; D hidden size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn.functional import linear

if TYPE_CHECKING:
    from torch import Tensor

    from core.api import LayerBuilder
    from core_plugin_deepseek.fourth.reading import Fourth


class Streams:
    """The streams around one block: what it reads, and what becomes of them.

    Args:
        path: What the names of the three parameters begin with.
    """

    def __init__(self, build: LayerBuilder, given: Fourth, path: str) -> None:
        count = given.streams
        width, self.sizes = count * (2 + count), (count, count, count * count)
        self.weight = build.parameter(f"{path}_fn", (width, count * given.hidden_size), dtype="float32")
        self.base = build.parameter(f"{path}_base", (width,), dtype="float32")
        self.scale = build.parameter(f"{path}_scale", (3,), dtype="float32")
        self.eps, self.stream_eps, self.rounds = given.eps, given.stream_eps, given.rounds

    def gather(self, streams: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return what the block reads, `(T, D)`, and by what `scatter` mixes: `(T, S)` and `(T, S, S)` float32."""
        count, eps = self.sizes[0], self.stream_eps
        found = linear(_normed(streams, self.eps), self.weight())
        scales, bases = self.scale().unbind(), self.base().split_with_sizes(self.sizes)
        before, after, across = (
            part * scale + base
            for part, scale, base in zip(found.split_with_sizes(self.sizes, dim=1), scales, bases, strict=True)
        )
        mix = doubly_stochastic(across.view(-1, count, count), self.rounds, eps)
        return _collapsed(streams, before.sigmoid() + eps), 2 * after.sigmoid(), mix

    def scatter(self, streams: Tensor, out: Tensor, after: Tensor, mix: Tensor) -> Tensor:
        """Return the streams behind the block, `(T, S, D)`; `out (T, D)` is what it gives."""
        dtype = streams.dtype
        return after.to(dtype)[..., None] * out[:, None] + mix.to(dtype).transpose(1, 2) @ streams


class LastStreams:
    """Reduction of the streams to one hidden state, behind the last layer."""

    def __init__(self, build: LayerBuilder, given: Fourth, path: str) -> None:
        count = given.streams
        self.weight = build.parameter(f"{path}_fn", (count, count * given.hidden_size), dtype="float32")
        self.base = build.parameter(f"{path}_base", (count,), dtype="float32")
        self.scale = build.parameter(f"{path}_scale", (1,), dtype="float32")
        self.eps, self.stream_eps = given.eps, given.stream_eps

    def __call__(self, streams: Tensor) -> Tensor:
        """`(T, S, D) -> (T, D)`."""
        found = linear(_normed(streams, self.eps), self.weight())
        return _collapsed(streams, (found * self.scale() + self.base()).sigmoid() + self.stream_eps)


def doubly_stochastic(logits: Tensor, rounds: int, eps: float) -> Tensor:
    """Return matrices `(T, S, S)` of which rows and columns sum to 1, nearly, after so many rounds."""
    found = logits.softmax(-1) + eps
    found = found / (found.sum(-2, keepdim=True) + eps)
    for _ in range(rounds - 1):
        found = found / (found.sum(-1, keepdim=True) + eps)
        found = found / (found.sum(-2, keepdim=True) + eps)
    return found


def _normed(streams: Tensor, eps: float) -> Tensor:
    """`(T, S, D) -> (T, S * D)` float32, of mean square 1."""
    flat = streams.flatten(1).float()
    return flat * torch.rsqrt(flat.square().mean(-1, keepdim=True) + eps)


def _collapsed(streams: Tensor, weights: Tensor) -> Tensor:
    """Return the sum of weighed streams, `(T, D)`; `weights (T, S)` float32."""
    return (weights[..., None] * streams).sum(1).to(streams.dtype)
