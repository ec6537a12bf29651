"""Two-phase filling: new storage is filled and checked, then every layer turns to it at once."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count, takewhile
from typing import TYPE_CHECKING

import torch

from core.api.errors import CheckpointError
from core.api.record import EMPTY
from core.layers.params import targets_of
from core.trim import trim
from core.worker.loading.experts import each_expert
from core.worker.loading.transpose import Transposed

if TYPE_CHECKING:
    from core.api.weights import WeightTensor
    from core.layers.params import Filling, Group
    from core.worker.loading.names import NameMap

TRIM_BYTES = 16 * 2**20
"""Bytes of weights after which the allocator gives back what it keeps: a quarter of all of them, if it is not asked."""

LISTED = 5
"""How many tensor names an error lists."""


class WeightFiller:
    """Fills the parameters of a model's layers; can be used again and again."""

    def __init__(self, groups: Sequence[Group], names: NameMap, device: torch.device) -> None:
        self._names = names
        self._device = device
        self._targets = targets_of(groups)
        self._groups = groups

    @property
    def groups(self) -> Sequence[Group]:
        """Parameter groups to be filled, in the order of the layers."""
        return self._groups

    @property
    def final_bytes(self) -> int:
        """Least bytes of all weights, as far as their layers tell."""
        return sum(group.final_bytes for group in self._groups)

    @torch.no_grad()
    def fill(self, tensors: Iterable[WeightTensor], kept: Mapping[Group, Filling] = EMPTY) -> int:
        """Replace all weights by `tensors`, which are read one at a time. If it fails, nothing has changed.

        What a tensor fills is brought into its final form as soon as all that belongs to it is there: nothing but the
        parts of layers that the stream is in the middle of is held as it was read.

        Args:
            kept: Groups whose final parameters are there already: their tensors are counted, and not read.

        Returns:
            Number of values read.

        Raises:
            CheckpointError: CORE-M120 tensors without a place, CORE-M121 tensors missing, CORE-M122 wrong shape,
                CORE-M124 a tensor that comes twice.
        """
        fillings = {group: kept.get(group) or group.filling(self._device) for group in self._groups}
        count = self._read(tensors, fillings)
        for filling in fillings.values():
            for layer, params in filling.ready():
                layer.bind(params)
        return count

    @torch.no_grad()
    def invent(self) -> int:
        """Replace all weights by made-up ones, which are equal each time; return the number of values."""
        bound = [pair for group in self._groups for pair in group.invented(self._device)]
        for layer, params in bound:
            layer.bind(params)
        tensors = {id(tensor): tensor for _, params in bound for tensor in params.values()}
        return sum(tensor.numel() for tensor in tensors.values())

    def _read(self, tensors: Iterable[WeightTensor], fillings: dict[Group, Filling]) -> int:
        missing = dict(self._targets)
        unexpected: list[str] = []
        count = copied = 0
        for tensor in tensors:
            for name, source in self._named(tensor):
                target = missing.pop(name, None)
                if target is not None:
                    copied += fillings[target.group].take(target.key, source)
                    count += math.prod(source.shape)
                    if copied >= TRIM_BYTES:
                        copied = 0
                        trim()
                elif name in self._targets:
                    raise CheckpointError("CORE-M124", f"the checkpoint holds the tensor '{source.name}' twice.")
                else:
                    unexpected.append(source.name)
        _check_complete(unexpected, [name for name, target in missing.items() if not target.optional])
        return count

    def _named(self, tensor: WeightTensor) -> Iterator[tuple[str, WeightTensor]]:
        """Yield what a checkpoint tensor holds, with the names of the parameters; nothing if it is left out."""
        name = self._names(tensor.name)
        if name is None:
            return
        each = self._names.of_experts(name)
        if each is None:
            yield name, Transposed(tensor) if self._names.transposes(tensor.name) else tensor
            return
        if math.prod(tensor.shape) == 1 and each[1] is None:
            yield from self._for_all_experts(tensor, each[0])
            return
        for one in each_expert(tensor, *each):
            if self._names.leaves_out(one.name):
                one.release()
            else:
                yield one.name, Transposed(one) if self._names.transposes(one.name) else one

    def _for_all_experts(self, tensor: WeightTensor, name: str) -> Iterator[tuple[str, WeightTensor]]:
        """Yield a tensor of one number, such as a scale of all experts, with the name that each of them has for it."""
        numbers = count()
        yield name.format(next(numbers)), tensor
        names = map(name.format, numbers)
        yield from ((own, tensor) for own in takewhile(self._targets.__contains__, names))


def _check_complete(unexpected: list[str], missing: list[str]) -> None:
    lacks = f"the checkpoint lacks {_tensors(missing)} of the model: {_listing(missing)}."
    if unexpected:
        also = f" Besides, {lacks}" if missing else ""
        raise CheckpointError(
            "CORE-M120",
            f"the model has no place for {_tensors(unexpected)} of the checkpoint: {_listing(unexpected)}.{also}",
            hint="A model plugin names tensors to leave out in its weight rules.",
        )
    if missing:
        raise CheckpointError("CORE-M121", lacks, hint="The checkpoint is incomplete; fetch it again.")


def _tensors(names: list[str]) -> str:
    return "1 tensor" if len(names) == 1 else f"{len(names)} tensors"


def _listing(names: list[str]) -> str:
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return ", ".join(names[:LISTED]) + more
