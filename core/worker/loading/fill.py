"""Two-phase filling: new storage is filled and checked, then every layer turns to it at once."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import torch

from core.api.errors import CheckpointError, CoreError, PluginError
from core.layers.params import ParamGroup, Params, Target, targets_of
from core.trim import trim
from core.worker.loading.transpose import Transposed

if TYPE_CHECKING:
    from core.api.weights import WeightTensor
    from core.layers.params import Parameterised
    from core.worker.loading.names import NameMap

TRIM_BYTES = 16 * 2**20
"""Bytes of weights after which the allocator gives back what it keeps: a quarter of all of them, if it is not asked."""

LISTED = 5
"""How many tensor names an error lists."""


class WeightFiller:
    """Fills the parameters of a model's layers; can be used again and again."""

    def __init__(self, groups: Sequence[ParamGroup], names: NameMap, device: torch.device) -> None:
        self._names = names
        self._device = device
        self._targets = targets_of(groups)
        self._groups = groups

    @property
    def final_bytes(self) -> int:
        """What all weights take at least, as far as their layers tell."""
        return sum(group.final_bytes for group in self._groups)

    @torch.no_grad()
    def fill(self, tensors: Iterable[WeightTensor]) -> int:
        """Replace all weights by `tensors`, which are read one at a time. If it fails, nothing has changed.

        A layer's parameters are brought into their final form as soon as they are complete: nothing but the layers
        that the stream is in the middle of is held as it was read.

        Returns:
            Number of values read.

        Raises:
            CheckpointError: CORE-M120 tensors without a place, CORE-M121 tensors missing, CORE-M122 wrong shape,
                CORE-M124 a tensor that comes twice.
        """
        fillings = {group: Filling(group, self._device) for group in self._groups}
        count = self._read(tensors, fillings)
        for filling in fillings.values():
            for layer, params in filling.ready():
                layer.bind(params)
        return count

    def _read(self, tensors: Iterable[WeightTensor], fillings: dict[ParamGroup, Filling]) -> int:
        missing = dict(self._targets)
        unexpected: list[str] = []
        count = copied = 0
        for tensor in tensors:
            name = self._names(tensor.name)
            if name is None:
                continue
            target = missing.pop(name, None)
            if target is not None:
                source: WeightTensor = Transposed(tensor) if self._names.transposes(tensor.name) else tensor
                copied += fillings[target.group].take(target, source)
                count += math.prod(tensor.shape)
                if copied >= TRIM_BYTES:
                    copied = 0
                    trim()
            elif name in self._targets:
                raise CheckpointError("CORE-M124", f"the checkpoint holds the tensor '{tensor.name}' twice.")
            else:
                unexpected.append(tensor.name)
        _check_complete(unexpected, [name for name, target in missing.items() if not target.group.optional])
        return count


class Filling:
    """New parameters of a group, from the first tensor that fills them to their final form."""

    def __init__(self, group: ParamGroup, device: torch.device) -> None:
        self._group = group
        self._device = device
        self._left = len(group.targets())
        self._storage: Params = {}
        self._ready: list[tuple[Parameterised, Params]] | None = None

    def take(self, target: Target, tensor: WeightTensor) -> int:
        """Copy a tensor to its place and return its bytes there; the last one completes the group."""
        if not self._storage:
            self._storage = self._group.allocate(self._device)
        copied = _copy(tensor, target, self._storage)
        self._left -= 1
        if self._left == 0:
            try:
                self._ready = self._group.finalize(self._storage)
            except (CoreError, MemoryError, torch.OutOfMemoryError):
                raise
            except Exception as error:
                raise _unusable(f"layer '{self._group.prefix}'", error) from error
            self._storage = {}
        return copied

    def ready(self) -> list[tuple[Parameterised, Params]]:
        """Return every layer with its parameters."""
        if self._ready is None:  # a group without tensors, as a plugin's layer may have, or without some of them
            self._ready = self._group.finalize(self._storage or self._group.allocate(self._device))
        return self._ready


def _unusable(what: str, error: Exception) -> CheckpointError:
    text = f"the values of {what} cannot be used: {type(error).__name__}: {str(error).partition(chr(10))[0]}."
    return CheckpointError("CORE-M203", text, hint="The checkpoint is damaged, or its quantization method has a bug.")


def _copy(tensor: WeightTensor, target: Target, storage: Params) -> int:
    try:
        value = target.group.decode(target.param, tensor)
    except (CoreError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        raise _unusable(f"the checkpoint tensor '{tensor.name}'", error) from error
    slot = target.slot(storage)
    if value.shape != slot.shape and tuple(tensor.shape) == tuple(slot.shape):
        raise PluginError(
            "CORE-P108",
            f"{target.group.owner}: decode() made shape {tuple(value.shape)} of the checkpoint tensor '{tensor.name}', "
            f"which has the shape {tuple(slot.shape)} that was declared.",
        )
    if value.shape != slot.shape:
        raise CheckpointError(
            "CORE-M122",
            f"the checkpoint tensor '{tensor.name}' has shape {tuple(value.shape)}, but the model that its "
            f"configuration describes needs {tuple(slot.shape)}.",
            hint="The weights and config.json do not belong together.",
        )
    slot.copy_(value)
    release = getattr(tensor, "release", None)
    if release is not None:
        release()
    return slot.nbytes


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
