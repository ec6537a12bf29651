"""Norms as a description says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core_plugin_decoder.description import HeadNorm
from core_plugin_decoder.description import Norm as NormOf
from core_plugin_decoder.ranks import Share

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from core.api import LayerBuilder
    from core.api.layers import Norm

    HeadNormed = Callable[[Tensor], Tensor]


def norm(given: NormOf, build: LayerBuilder, size: int, path: str = "") -> Norm:
    """Return a norm of the last dimension; `path` is that of the part whose module it is."""
    name = f"{path}.{given.name}" if path else given.name
    if given.groups > 1:
        return _Grouped(given, build, size, name)
    if given.kind == "rms":
        return build.rms_norm(size, given.eps, name, offset=given.offset, weight=given.weight)
    return build.layer_norm(size, given.eps, name, bias=given.bias, offset=given.offset, weight=given.weight)


def divided_norm(given: NormOf, build: LayerBuilder, size: int, path: str, share: Share, unit: int) -> Norm:
    """Return an RMS norm of what ranks divide as they divide a mixer.

    Args:
        size: Numbers of all ranks.
        path: Of the part whose module it is.
        unit: Numbers of a head.

    Raises:
        CheckpointError: As `rms_norm`, where there are no groups.
    """
    if share.ranks == 1:
        return norm(given, build, size, path)
    name = f"{path}.{given.name}"
    if given.groups > 1:
        return _Grouped(given, build, size, name, share)
    return build.rms_norm(size, given.eps, name, offset=given.offset, shard="out", unit=unit, weight=given.weight)


def head_norm(given: HeadNorm, build: LayerBuilder, path: str, heads: int, head_dim: int) -> HeadNormed:
    """Return a norm of queries, keys or values, `(tokens, heads, head_dim)`.

    Args:
        path: Of the attention.
        heads: Of all ranks.
    """
    if given.over == "head":
        return norm(given.norm, build, head_dim, path)
    if given.over == "own":
        return _OwnWeights(given, build, path, heads, head_dim)
    return _AllHeads(given, build, path, heads, head_dim)


class _Grouped:
    """A norm of each of several parts of the hidden states, with one weight for all of them.

    Args:
        share: How ranks divide the parts.
    """

    def __init__(self, given: NormOf, build: LayerBuilder, size: int, name: str, share: Share | None = None) -> None:
        part, share = size // given.groups, share or Share(1, 1)
        kind = build.rms_norm if given.kind == "rms" else build.layer_norm
        self._norm, self._view = kind(part, given.eps, name, weight=False), (-1, given.groups // share.ranks, part)
        self._weight = build.parameter(
            f"{name}.weight", (size,), shard=share.out, unit=part, read=lambda stored: stored + given.offset
        )

    def __call__(self, x: Tensor) -> Tensor:
        return self._norm(x.view(self._view)).flatten(1) * self._weight()

    def add(self, x: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        total = residual + x
        return self(total), total


class _OwnWeights:
    """A norm of each head, with a weight of its own."""

    def __init__(self, given: HeadNorm, build: LayerBuilder, path: str, heads: int, head_dim: int) -> None:
        kind = build.rms_norm if given.norm.kind == "rms" else build.layer_norm
        name = f"{path}.{given.norm.name}"
        self._norm = kind(head_dim, given.norm.eps, name, weight=False)
        self._size = head_dim
        stored: str | list[str] = f"{name}.weight" if given.parameter is None else f"{path}.{given.parameter}"
        if given.stacked is not None:
            stored = [f"{path}.{given.stacked.format(head)}.weight" for head in range(heads)]
        if given.flat:
            self._weight = build.parameter(stored, (heads * head_dim,), shard="out", unit=head_dim)
        else:
            self._weight = build.parameter(stored, (heads, head_dim), shard="out", unit=1)

    def __call__(self, x: Tensor) -> Tensor:
        return self._norm(x) * self._weight().view(-1, self._size)


class _AllHeads:
    """A norm of all heads of a token together."""

    def __init__(self, given: HeadNorm, build: LayerBuilder, path: str, heads: int, head_dim: int) -> None:
        name, size = f"{path}.{given.norm.name}", heads * head_dim
        if given.norm.kind == "rms":
            offset, weight = given.norm.offset, given.norm.weight
            self._norm: Norm = build.rms_norm(
                size, given.norm.eps, name, offset=offset, shard="out", unit=head_dim, weight=weight
            )
        else:
            self._norm = norm(given.norm, build, size, path)

    def __call__(self, x: Tensor) -> Tensor:
        # Queries are a part of a wider row: what is normalised lies apart by rows, not by heads.
        return self._norm(x.flatten(1)).view(x.shape)
