"""Sizes that depend on the tokens of a step: what several recordings of one forward pass have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Extent:
    """`constant + per_token * tokens`."""

    constant: int
    per_token: int = 0

    def at(self, tokens: int) -> int:
        """Return the number for so many tokens."""
        return self.constant + self.per_token * tokens


def through(numbers: Sequence[int], sizes: Sequence[int]) -> Extent | None:
    """Return the extent that is `numbers[i]` for `sizes[i]` tokens, or None: they lie on no line of whole numbers."""
    if all(one == numbers[0] for one in numbers):
        return Extent(numbers[0])
    slope, rest = divmod(numbers[0] - numbers[1], sizes[0] - sizes[1])
    found = Extent(numbers[0] - slope * sizes[0], slope)
    return found if not rest and all(found.at(size) == one for size, one in zip(sizes, numbers)) else None


@dataclass(frozen=True, slots=True)
class Shape:
    """Where a tensor's elements are in its memory.

    Attributes:
        offset: Elements before the first one.
    """

    size: tuple[Extent, ...]
    stride: tuple[Extent, ...]
    offset: Extent

    @staticmethod
    def of(tensors: Sequence[Tensor], sizes: Sequence[int], offsets: Sequence[int]) -> Shape | None:
        """Return the shape of one tensor in recordings of so many tokens; None if it follows no line."""
        if len({one.dim() for one in tensors}) > 1:
            return None
        size, stride = [], []
        for dim in range(tensors[0].dim()):
            lengths = [one.shape[dim] for one in tensors]
            size.append(through(lengths, sizes))
            # Between the elements of a dimension that has only one, there is no distance.
            many = [index for index, length in enumerate(lengths) if length > 1] or [0]
            stride.append(through([tensors[index].stride(dim) for index in many], [sizes[index] for index in many]))
        offset = through(offsets, sizes)
        if offset is None or None in size or None in stride:
            return None
        return Shape(tuple(filter(None, size)), tuple(filter(None, stride)), offset)

    @property
    def laid_still(self) -> bool:
        """Whether rows lie where they lie, however many there are."""
        return not any(one.per_token for one in self.stride)

    def within(self, tokens: int, room: Extent | None) -> bool:
        """Whether a tensor of so many tokens lies in memory of `room` elements; None: wherever it is."""
        size, first = self.sizes(tokens), self.offset.at(tokens)
        last = first + sum((length - 1) * apart for length, apart in zip(size, self.strides(tokens)))
        fits = room is None or not all(size) or (first >= 0 and last < max(1, room.at(tokens)))
        return min(size, default=0) >= 0 and fits

    def sizes(self, tokens: int) -> tuple[int, ...]:
        """Return the lengths of the dimensions."""
        return tuple(one.at(tokens) for one in self.size)

    def strides(self, tokens: int) -> tuple[int, ...]:
        """Return the distances between their elements."""
        return tuple(one.at(tokens) for one in self.stride)

    def view(self, base: Tensor, tokens: int) -> Tensor:
        """Return the tensor of so many tokens in the memory that begins with `base`."""
        offset = base.storage_offset() + self.offset.at(tokens)
        return base.as_strided(self.sizes(tokens), self.strides(tokens), offset)

    def fits(self, tensor: Tensor, tokens: int) -> bool:
        """Whether a tensor of this size lies as this one does."""
        apart = zip(tensor.stride(), self.strides(tokens), tensor.shape)
        return all(found == wanted or length < 2 for found, wanted, length in apart)
