"""Two-phase filling: new storage is filled and checked, then every layer turns to it at once."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import torch

from core.api.errors import CheckpointError
from core.layers.params import ParamGroup, Target, targets_of
from core.worker.loading.transpose import Transposed

if TYPE_CHECKING:
    from core.api.weights import WeightTensor
    from core.layers.params import Params
    from core.worker.loading.names import NameMap

    Storage = dict[ParamGroup, Params]

LISTED = 5
"""How many tensor names an error lists."""


class WeightFiller:
    """Fills the parameters of a model's layers; can be used again and again."""

    def __init__(self, groups: Sequence[ParamGroup], names: NameMap, device: torch.device) -> None:
        self._groups = groups
        self._names = names
        self._device = device
        self._targets = targets_of(groups)

    @torch.no_grad()
    def fill(self, tensors: Iterable[WeightTensor]) -> int:
        """Replace all weights by `tensors`, which are read one at a time. If it fails, nothing has changed.

        Returns:
            Number of values read.

        Raises:
            CheckpointError: CORE-M120 tensors without a place, CORE-M121 tensors missing, CORE-M122 wrong shape,
                CORE-M124 a tensor that comes twice.
        """
        storage = {group: group.allocate(self._device) for group in self._groups}
        count = self._read(tensors, storage)
        ready = [pair for group in self._groups for pair in group.finalize(storage.pop(group))]
        for layer, params in ready:
            layer.bind(params)
        return count

    def _read(self, tensors: Iterable[WeightTensor], storage: Storage) -> int:
        missing = dict(self._targets)
        unexpected: list[str] = []
        count = 0
        for tensor in tensors:
            name = self._names(tensor.name)
            if name is None:
                continue
            target = missing.pop(name, None)
            if target is not None:
                source: WeightTensor = Transposed(tensor) if self._names.transposes(tensor.name) else tensor
                _copy(source, target, storage)
                count += math.prod(tensor.shape)
            elif name in self._targets:
                raise CheckpointError("CORE-M124", f"the checkpoint holds the tensor '{tensor.name}' twice.")
            else:
                unexpected.append(tensor.name)
        _check_complete(unexpected, list(missing))
        return count


def _copy(tensor: WeightTensor, target: Target, storage: Storage) -> None:
    value = target.group.decode(target.param, tensor)
    slot = target.slot(storage[target.group])
    if value.shape != slot.shape:
        raise CheckpointError(
            "CORE-M122",
            f"the checkpoint tensor '{tensor.name}' has shape {tuple(value.shape)}, but the model that its "
            f"configuration describes needs {tuple(slot.shape)}.",
            hint="The weights and config.json do not belong together.",
        )
    slot.copy_(value)


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
