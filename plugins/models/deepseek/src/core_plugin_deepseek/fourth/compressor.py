"""Compressed entries: gated means of the products of so many tokens. Shapes: T tokens of a step; D size of an entry."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from core.api import State
from core_plugin_deepseek.fourth.states import before, keep, pushed, several, single

if TYPE_CHECKING:
    from core.api import LayerBuilder, StepInputs
    from core_plugin_deepseek.fourth.reading import Compression
    from core_plugin_deepseek.fourth.rotation import Rotation


class Compressor:
    """Makes the entries of a layer, or of its index. Every token has one; that of the last of `ratio` tokens counts.

    Args:
        size: Of an entry.
        path: Of the module.
    """

    def __init__(self, build: LayerBuilder, given: Compression, hidden: int, size: int, eps: float, path: str) -> None:
        series = 2 if given.overlaps else 1
        width, self.ratio = series * size, given.ratio
        self.products = build.merged_linear(hidden, {"wkv": width, "wgate": width}, path)
        self.bias = build.parameter(f"{path}.ape", (given.ratio, width), dtype="float32")
        self.norm = build.rms_norm(size, eps, f"{path}.norm")
        self.past = build.state(f"{path}.past", (series * given.ratio, 2 * width), dtype="compute")

    def __call__(self, hidden: Tensor, rotate: Rotation, step: StepInputs) -> Tensor:
        """`(T, hidden) -> (T, D)`, rotated at the position of an entry's first token."""
        pooled = pool(self.products(hidden), self.bias(), step.positions, self.past(step))
        first = torch.div(step.positions, self.ratio, rounding_mode="floor") * self.ratio
        return rotate(first, self.norm(pooled).unsqueeze(1)).squeeze(1)


def pool(lines: Tensor, bias: Tensor, positions: Tensor, state: State) -> Tensor:
    """Return the means of the last tokens at every token that ends an entry, `(T, D)`; anything finite at others.

    An entry stands for `ratio` tokens. Where the state has twice as many lines, products and gates are of two series:
    one that counts for the entry behind a token's own, and one for its own.

    Args:
        lines: `(T, 2 * series * D)`: products, then gates.
        bias: `(ratio, series * D)` float32, added to the gates of each token by its place.
        positions: `(T,)` int64.
        state: `(series * ratio, 2 * series * D)`, a ring.
    """
    ratio, span = len(bias), state.memory.shape[1]
    out = lines.new_zeros(len(lines), bias.shape[1] // (span // ratio))
    back = torch.arange(1 - span, 1, device=lines.device)
    if (rows := single(state)) is not None:
        of = rows.tokens
        ring, seen = pushed(state, rows, lines[of], positions[of]), positions[of][:, None] + back
        found = ring.gather(1, (seen % span)[..., None].expand_as(ring))
        out[of] = _mean(found.to(lines.dtype), seen >= 0, bias)
    for row in several(state):
        first, own = int(positions[row.begin]), lines[row.begin : row.end]
        if (begin := (ratio - 1 - first) % ratio) < len(own):
            ends = torch.arange(begin, len(own), ratio, device=lines.device)
            line = torch.cat((before(state, row, first).to(own.dtype), own))
            places = ends[:, None] + back
            out[row.begin + ends] = _mean(line[places + span - 1], places + first >= 0, bias)
        keep(state, row, first, own)
    return out


def _mean(lines: Tensor, seen: Tensor, bias: Tensor) -> Tensor:
    """Return gated means: `(n, span, 2 * series * D)`, `seen (n, span)` -> `(n, D)`."""
    ratio, series = len(bias), lines.shape[1] // len(bias)
    products, gates = lines.chunk(2, dim=-1)
    gates = gates + bias.repeat(series, 1)
    if series == 2:
        products, gates = _of_two(products, ratio), _of_two(gates, ratio)
    products = products.masked_fill(~seen[..., None], 0)
    shares = gates.masked_fill(~seen[..., None], -torch.inf).softmax(1, dtype=torch.float32)
    return (products * shares.to(products.dtype)).sum(1)


def _of_two(x: Tensor, ratio: int) -> Tensor:
    """Return the first series of the tokens before, and the second of an entry's own."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first[:, :ratio], second[:, ratio:]), dim=1)
