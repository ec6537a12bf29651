"""Cuts of weights: which outputs and inputs of a stored tensor a part of a layer has on this rank."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
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
        """Return the elements along `axis`: a view of a single run, a copy of several.

        Raises:
            ValueError: There are not as many as the cut was made for.
        """
        if values.shape[axis] != self.whole:
            raise ValueError(f"dimension {axis} of {tuple(values.shape)} has not {self.whole} elements")
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


class Joined(NamedTuple):
    """Cuts of parts that lie one after another in a dimension."""

    cuts: tuple[Cut, ...]

    @property
    def size(self) -> int:
        """Elements that are taken."""
        return sum(cut.size for cut in self.cuts)

    def take(self, values: Tensor, axis: int) -> Tensor:
        """Return the elements along `axis`, part by part. Raises as `Cut.take`."""
        import torch

        whole = [cut.whole for cut in self.cuts]
        if values.shape[axis] != sum(whole):
            raise ValueError(f"dimension {axis} of {tuple(values.shape)} has not {sum(whole)} elements")
        parts = values.split_with_sizes(whole, axis)
        return torch.cat([cut.take(part, axis) for cut, part in zip(self.cuts, parts, strict=True)], axis)


class Cuts(NamedTuple):
    """Cuts of a layer through its stored tensors: outputs of each part, in order, and inputs, the same for all."""

    outputs: tuple[Cut, ...]
    inputs: Cut


class _Axis(NamedTuple):
    """The cut of one dimension of a tensor.

    Attributes:
        values: Of the values that it holds.
        stored: Of the elements that hold them, as `raw()` gives these.
    """

    axis: int
    values: Cut
    stored: Cut


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
            shape[one.axis] = (one.stored if self.encoding == "plain" else one.values).size
        self.shape = tuple(shape)

    def dense(self, dtype: torch.dtype) -> Tensor:
        """Return the values in `dtype`."""
        if self.encoding == "plain":  # only what is taken is converted
            return self.raw().to(dtype, copy=True)
        values = self._tensor.dense(dtype)
        for one in self._axes:
            values = one.values.take(values, one.axis)
        return values

    def raw(self) -> Tensor:
        """Return the stored elements."""
        elements = self._tensor.raw()
        for one in self._axes:
            elements = one.stored.take(elements, one.axis)
        return elements


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
    tensor = _unpadded(tensor, stored, cuts)
    _check_sizes(tensor, stored, cuts)
    axes = list(_axes(tensor, stored, cuts, module))
    if not axes and done is None:
        return tensor
    return CutTensor(tensor, axes, done or (lambda: release(tensor)))


def _axes(tensor: WeightTensor, stored: Stored, cuts: tuple[Cut, Cut], module: str) -> Iterator[_Axis]:
    for what, axis, cut, group, unit in zip(
        ("outputs", "inputs"), stored.axes, cuts, stored.per, stored.unit, strict=True
    ):
        if axis is None or cut.complete:
            continue
        if tensor.encoding != stored.encoding:  # one number for each output and input
            yield _Axis(axis, cut, cut)
        elif cut.splits(group):
            raise inside(tensor.name, cut, f"{group} {what}", module)
        else:
            yield _Axis(axis, cut, cut.grouped(group, unit))


def _unpadded(tensor: WeightTensor, stored: Stored, cuts: tuple[Cut, Cut]) -> WeightTensor:
    """Return a tensor without what fills its dimensions up to multiples: itself, where that is no single number."""
    if stored.padded == (1, 1) or not tensor.encoding == stored.encoding == "plain":
        return tensor
    sizes = (cuts[0].whole, cuts[1].whole)
    filled = (-(-size // most) * most for size, most in zip(sizes, stored.padded, strict=True))
    counts = zip(stored.axes, stored.elements(*sizes), stored.elements(*filled), strict=True)
    for axis, count, most in counts:
        if axis is None or axis >= len(tensor.shape) or not count < tensor.shape[axis] <= most:
            continue
        rest = tensor.raw().narrow(axis, count, tensor.shape[axis] - count)
        if rest.numel() and not bool((rest == rest.flatten()[0]).all()):
            return tensor
        cut = Cut(tensor.shape[axis], 0, count)
        tensor = CutTensor(tensor, [_Axis(axis, cut, cut)], partial(release, tensor))
    return tensor


def inside(name: str, cut: Cut, group: str, module: str) -> CheckpointError:
    """Return the error of a cut that divides what a tensor holds together: CORE-M185."""
    taken = f"{cut.start} to {cut.start + cut.count} of {cut.whole}"
    return CheckpointError(
        "CORE-M185",
        f"layer '{module}' cannot be divided as asked: this rank takes {taken}, but '{name}' holds {group} together.",
        hint=f"Use fewer ranks, or a checkpoint with groups that divide {cut.count}.",
    )


def _check_sizes(tensor: WeightTensor, stored: Stored, cuts: tuple[Cut, Cut]) -> None:
    """Hold a tensor against the model, before it is read. Raises `CheckpointError` CORE-M122."""
    sizes, shape = (cuts[0].whole, cuts[1].whole), tuple(tensor.shape)
    # The shape of an encoded tensor is that of its values; so is that of plain numbers where a format has blocks.
    packed = tensor.encoding == stored.encoding == "plain"
    counts = stored.elements(*sizes) if packed else sizes
    due = {axis: count for axis, count in zip(stored.axes, counts, strict=True) if axis is not None}
    last = max(due, default=-1)
    # Scales that outputs share may lie in further dimensions of 1, and in one of groups that nobody counts here; so may
    # those that have dimensions of 1 between their own. Tiles of codes lie in as many as their kernel wants.
    further = stored.count != 1 or len(due) < 2 or last + 1 > len(due)
    least = last + 2 if stored.count > 1 else last + 1
    rank = max(len(shape), least) if further else last + 1
    here = [*shape[: last + 1], *[1] * (rank - len(shape[: last + 1]))]
    if stored.count != 1 and rank > last + 1:
        here[last + 1 :] = [stored.count, *here[last + 2 :]] if stored.count else shape[last + 1 :]
    wanted = tuple(due.get(axis, here[axis]) for axis in range(rank))
    if wanted != shape:
        raise misfit(tensor.name, shape, wanted)
