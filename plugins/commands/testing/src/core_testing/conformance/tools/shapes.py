"""How arguments of an operation are made: what `SHAPES` in `ops.py` has for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Sizes = Mapping[str, int]
Make = Callable[["Maker", Sizes], tuple[Any, ...]]
Settle = Callable[[Sequence[Any], list[Tensor], list[Tensor]], list[Tensor]]


class Named(dict[str, Any]):
    """Arguments that are passed by name; the last of an operation's arguments."""


@dataclass(frozen=True, slots=True)
class Maker:
    """Makes tensors of one dtype from one seed.

    Attributes:
        values: Changes random values, for instance into special ones; given the tensor, returns it.
    """

    dtype: torch.dtype
    rng: torch.Generator
    values: Callable[[Tensor], Tensor] = lambda tensor: tensor

    def activations(self, *shape: int) -> Tensor:
        """Return what a layer may be given: normal values, or special ones."""
        return self.values(torch.randn(*shape, generator=self.rng)).to(self.dtype)

    def weights(self, *shape: int) -> Tensor:
        """Return parameters about 1."""
        return (1 + 0.2 * torch.randn(*shape, generator=self.rng)).to(self.dtype)

    def indices(self, count: int, below: int) -> Tensor:
        """Return `(count,)` int64 numbers in `[0, below)`."""
        return torch.randint(0, below, (count,), generator=self.rng)


@dataclass(frozen=True, slots=True)
class OpShape:
    """The arguments of one operation.

    Attributes:
        sizes: Name of each size -> values worth trying, `rows` left out; those that `core.ops.registry` names are
            what a kernel's `dims` are held against.
        make: Makes the arguments, in the reference form's order, for `sizes` and `rows`.
        rows: Places of the arguments whose first dimension is the rows; a result's first dimension is too. Layers may
            pass these as slices of something larger; their last dimension is contiguous.
        large: Sizes at which speed says something; `rows` included.
        fits: Whether a combination of sizes makes sense.
        settle: Given arguments, a kernel's outputs and the reference's, returns the kernel's outputs with the
            reference's in place of those that are as good as they, where the operation leaves a choice.
        part: Given arguments and two numbers, returns the arguments for the rows between; by default `rows` are sliced.
        spans: Given arguments, returns the first row and the one behind the last of what can be computed alone; by
            default rows depend on no others.
    """

    sizes: Mapping[str, Sequence[int]]
    make: Make
    rows: tuple[int, ...]
    large: Sizes
    fits: Callable[[Sizes], bool] = lambda sizes: True
    settle: Settle = lambda arguments, found, due: found
    part: Callable[[Sequence[Any], int, int], list[Any]] | None = None
    spans: Callable[[Sequence[Any]], list[tuple[int, int]]] | None = None

    def alone(self, arguments: Sequence[Any], usual: Sequence[tuple[int, int]]) -> Sequence[tuple[int, int]]:
        """Return spans of rows that can be computed without the others: the usual ones if any can."""
        return usual if self.spans is None else self.spans(arguments)

    def between(self, arguments: Sequence[Any], begin: int, end: int) -> list[Any]:
        """Return the arguments for some of the rows, in memory of their own."""
        if self.part is not None:
            return self.part(arguments, begin, end)
        return [one[begin:end].clone() if place in self.rows else one for place, one in enumerate(arguments)]
