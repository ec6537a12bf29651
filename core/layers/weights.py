"""Weights of layers: parts that a format reads from the checkpoint, and a product packs."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, cast

import torch

from core.api.forms import Stored
from core.layers.guard import blamed
from core.layers.params import Parameterised, Params, Target, misfit, release, unusable
from core.ops.products import opened

if TYPE_CHECKING:
    from core.api.products import Product
    from core.api.quantization import Format, LayerSite
    from core.api.weights import WeightTensor

BIAS = "bias"


class WeightGroup:
    """The weight of a layer, which an embedding and the head that is tied to it share.

    Args:
        readers: Whose the format and the product are, for errors.

    Attributes:
        product: Multiplies with the parameters.
    """

    def __init__(self, site: LayerSite, form: Format, product: Product, readers: tuple[str, str]) -> None:
        self.prefix = site.prefix
        self.site, self.product = site, product
        self.format, self.owners = form, readers
        self.stored = [list(form.stored(site, name)) for name, _ in site.parts]
        if site.bias:
            for stored in self.stored:
                stored.append(Stored(BIAS, (0, None)))
        self.sizes = product.sizes()
        self.layers: list[Parameterised] = []

    @property
    def final_bytes(self) -> int:
        """What the parameters take."""
        return sum(math.prod(shape) * dtype.itemsize for shape, dtype in self.sizes.values())

    def targets(self) -> dict[str, Target]:
        """Return checkpoint tensor name -> where it goes."""
        return {
            f"{self.site.module(name)}.{one.suffix}": Target(self, (index, one.suffix), one.optional)
            for index, (name, _) in enumerate(self.site.parts)
            for one in self.stored[index]
        }

    def filling(self, device: torch.device) -> WeightFilling:
        """Return new storage, to be filled."""
        return WeightFilling(self, device)


class WeightFilling:
    """New parameters of a layer's weight. Each part is read and packed as soon as its tensors are there."""

    def __init__(self, group: WeightGroup, device: torch.device) -> None:
        self._group, self._device = group, device
        self._given: list[dict[str, WeightTensor]] = [{} for _ in group.site.parts]
        self._params: Params | None = None
        self._ready: Params | None = None
        self._unpacked = set(range(len(group.site.parts)))

    def take(self, key: Hashable, tensor: WeightTensor) -> int:
        """Keep a tensor until the others of its part are there; return the bytes that were packed."""
        index, suffix = cast("tuple[int, str]", key)
        given, stored = self._given[index], self._group.stored[index]
        _check_sizes(tensor, next(one for one in stored if one.suffix == suffix), self._group.site, index)
        given[suffix] = tensor
        return self._pack(index) if len(given) == len(stored) else 0

    def ready(self) -> list[tuple[Parameterised, Params]]:
        """Return every layer with its parameters."""
        for index in sorted(self._unpacked):  # what is optional did not come
            self._pack(index)
        ready = self._ready or {}
        return [(layer, ready) for layer in self._group.layers]

    def _pack(self, index: int) -> int:
        group, (name, rows) = self._group, self._group.site.parts[index]
        if self._params is None:
            self._params = _allocated(group.sizes, self._device)
        given = self._given[index]
        with unusable(f"layer '{group.site.module(name)}'"):
            part = group.format.read(group.site, name, {key: one for key, one in given.items() if key != BIAS})
            if BIAS in given:
                part.bias = given[BIAS].dense(torch.float32).view(rows)
        if part.decode is None:
            part.decode = partial(opened, replace(part))  # a copy: no cycle that would keep its tensors
        with blamed(group.owners[1], f"pack() of '{group.site.module(name)}'"):
            group.product.pack(part, index, self._params)
        for tensor in given.values():
            release(tensor)
        given.clear()
        self._unpacked.remove(index)
        if not self._unpacked:
            with blamed(group.owners[1], f"finish() of '{group.prefix}'"):
                self._ready = group.product.finish(self._params)
            self._params = None
        return group.final_bytes // len(self._given)


def _allocated(sizes: Mapping[str, tuple[tuple[int, ...], torch.dtype]], device: torch.device) -> Params:
    return {name: torch.empty(shape, dtype=dtype, device=device) for name, (shape, dtype) in sizes.items()}


def _check_sizes(tensor: WeightTensor, stored: Stored, site: LayerSite, index: int) -> None:
    """Hold a tensor against the model, before it is read. Raises `CheckpointError` CORE-M122."""
    sizes, shape = (site.parts[index][1], site.in_features), tuple(tensor.shape)
    # The shape of an encoded tensor is that of its values; so is that of plain numbers where a format has blocks.
    packed = tensor.encoding == stored.encoding == "plain"
    counts = stored.elements(*sizes) if packed else sizes
    due = {axis: count for axis, count in zip(stored.axes, counts, strict=True) if axis is not None}
    last = max(due, default=-1)
    # Scales that outputs share may lie in further dimensions of 1, and in one of groups that nobody counts here.
    rank = last + 1 if len(due) == 2 else max(len(shape), last + 1)
    here = [*shape[: last + 1], *[1] * (rank - len(shape[: last + 1]))]
    wanted = tuple(due.get(axis, here[axis]) for axis in range(rank))
    if wanted != shape:
        raise misfit(tensor.name, shape, wanted)
