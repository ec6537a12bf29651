"""Cuts of weights: which outputs and inputs of a stored tensor a part of a layer has on this rank."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from core.api.errors import CheckpointError
from core.layers.params import misfit, release

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from core.api.forms import Stored
    from core.api.weights import WeightTensor


@dataclass(frozen=True, slots=True)
class Cut:
    """Elements of a dimension: `runs` runs of `count` each, `step` apart, the first from `start` on.

    Attributes:
        whole: Elements of the dimension.
        step: Divides `whole`, and no run crosses a multiple of it, where there are several runs.
    """

    whole: int
    start: int
    count: int
    step: int = 0
    runs: int = 1

    @staticmethod
    def all(size: int) -> Cut:
        """Return the cut that takes everything."""
        return Cut(size, 0, size)

    @property
    def size(self) -> int:
        """Elements that are taken."""
        return self.count * self.runs

    @property
    def complete(self) -> bool:
        """Whether it takes everything, in order."""
        return self.count == self.whole

    def take(self, values: Tensor, axis: int) -> Tensor:
        """Return the elements along `axis`: a view of a single run, a copy of several."""
        if self.runs == 1:
            return values.narrow(axis, self.start, self.count)
        # By views and one copy: indexing is not there for every dtype that weights are stored in.
        sizes = (*values.shape[:axis], -1, self.step, *values.shape[axis + 1 :])
        turns = values.reshape(sizes).narrow(axis, self.start // self.step, self.runs)
        return turns.narrow(axis + 1, self.start % self.step, self.count).flatten(axis, axis + 1)

    def splits(self, group: int) -> bool:
        """Whether it takes a part of what `group` neighbours share, and leaves another part."""
        ends = (self.start, self.start + self.count, self.step)
        return any(end % group and end != self.whole for end in ends)

    def grouped(self, group: int, unit: int) -> Cut:
        """Return the same cut of a dimension in which `unit` elements hold `group` neighbours."""
        end = -(-(self.start + self.count) // group)
        start = self.start // group
        return Cut(
            -(-self.whole // group) * unit, start * unit, (end - start) * unit, self.step // group * unit, self.runs
        )


class Cuts(NamedTuple):
    """What a layer takes of its stored tensors: outputs of each part, in order, and inputs, the same for all parts."""

    outputs: tuple[Cut, ...]
    inputs: Cut


class _Axis(NamedTuple):
    """The cut of one dimension of a tensor, and how many neighbours its elements hold."""

    axis: int
    cut: Cut
    group: int
    unit: int

    def take(self, values: Tensor) -> Tensor:
        """Return what is taken of a dimension that has the elements one by one, or packed, or one for all."""
        have = values.shape[self.axis]
        if not self.size(have):
            whole = f"{self.cut.whole} in groups of {self.group}"
            raise ValueError(f"dimension {self.axis} has {have} elements, which do not hold {whole}")
        if have == 1:
            return values
        cut = self.cut if have == self.cut.whole else self.cut.grouped(self.group, self.unit)
        return cut.take(values, self.axis)

    def size(self, have: int) -> int:
        """Return how many of `have` elements are taken; 0: they are not as many as the cut was made for."""
        packed = self.cut.grouped(self.group, self.unit)
        sizes = {1: 1, packed.whole: packed.size, self.cut.whole: self.cut.size}
        return sizes.get(have, 0)


class CutTensor:
    """A `WeightTensor` of which a part takes some outputs and inputs; nothing else of it is read.

    Args:
        done: Called when the values were taken.
    """

    def __init__(self, tensor: WeightTensor, axes: list[_Axis], done: Callable[[], None]) -> None:
        self.name, self.encoding = tensor.name, tensor.encoding
        self._tensor, self._axes, self.release = tensor, axes, done
        shape = list(tensor.shape)
        for one in axes:
            shape[one.axis] = one.size(shape[one.axis])
        self.shape = tuple(shape)

    def dense(self, dtype: torch.dtype) -> Tensor:
        """Return the values in `dtype`."""
        if self.encoding == "plain":  # only what is taken is converted
            return self.raw().to(dtype, copy=True)
        return self._taken(self._tensor.dense(dtype))

    def raw(self) -> Tensor:
        """Return the stored elements."""
        return self._taken(self._tensor.raw())

    def _taken(self, values: Tensor) -> Tensor:
        for one in self._axes:
            values = one.take(values)
        return values


def cut_tensor(
    tensor: WeightTensor, stored: Stored, cuts: tuple[Cut, Cut], module: str, done: Callable[[], None] | None = None
) -> WeightTensor:
    """Return what a part takes of a tensor: the tensor itself if that is all of it.

    Args:
        cuts: Along the outputs, and along the inputs.
        module: Path of the part, for errors.
        done: Called when the values were taken, instead of the tensor's own `release`.

    Raises:
        CheckpointError: CORE-M122, it is not as large as the model needs; CORE-M185, the cut divides what the tensor
            holds for several outputs or inputs together.
    """
    _check_sizes(tensor, stored, cuts)
    axes = list(_axes(tensor, stored, cuts, module)) if math.prod(tensor.shape) != 1 else []
    if not axes and done is None:
        return tensor
    return CutTensor(tensor, axes, done or (lambda: release(tensor)))


def _axes(tensor: WeightTensor, stored: Stored, cuts: tuple[Cut, Cut], module: str) -> Iterator[_Axis]:
    for axis, cut, group, unit in zip(stored.axes, cuts, stored.per, stored.unit, strict=True):
        if axis is None or cut.complete:
            continue
        have = tensor.shape[axis]
        one = _Axis(axis, cut, group or cut.whole, unit)
        if not one.size(have):
            wanted = tuple(cut.whole if place == axis else size for place, size in enumerate(tensor.shape))
            raise misfit(tensor.name, tuple(tensor.shape), wanted)
        packed = have not in (1, cut.whole) or tensor.encoding != "plain"
        if packed and cut.splits(one.group):
            raise _inside(tensor, cut, one.group, module, "outputs" if cut is cuts[0] else "inputs")
        yield one


def _inside(tensor: WeightTensor, cut: Cut, group: int, module: str, what: str) -> CheckpointError:
    taken = f"{cut.start} to {cut.start + cut.count} of {cut.whole}"
    return CheckpointError(
        "CORE-M185",
        f"layer '{module}' cannot be divided as asked: this rank takes {what} {taken}, but '{tensor.name}' holds "
        f"{group} {what} together.",
        hint=f"Use fewer ranks, or a checkpoint with groups that divide {cut.count}.",
    )


def _check_sizes(tensor: WeightTensor, stored: Stored, cuts: tuple[Cut, Cut]) -> None:
    """Hold a tensor against the model, before it is read. Raises `CheckpointError` CORE-M122."""
    sizes, shape = (cuts[0].whole, cuts[1].whole), tuple(tensor.shape)
    # The shape of an encoded tensor is that of its values; so is that of plain numbers where a format has blocks.
    packed = tensor.encoding == stored.encoding == "plain"
    counts = stored.elements(*sizes) if packed else sizes
    due = {axis: count for axis, count in zip(stored.axes, counts, strict=True) if axis is not None}
    rank = max(len(shape), *(axis + 1 for axis in due), 0)
    wanted = tuple(due.get(axis, shape[axis] if axis < len(shape) else 1) for axis in range(rank))
    if wanted != shape:
        raise misfit(tensor.name, shape, wanted)
