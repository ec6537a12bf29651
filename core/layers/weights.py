"""Weights of layers: parts that a format reads from the checkpoint, and a product packs."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, cast

import torch

from core.api.errors import CheckpointError, PluginError
from core.api.forms import Stored
from core.layers.cuts import Cut, cut_tensor
from core.layers.damage import check_scales, located
from core.layers.guard import blamed
from core.layers.invented import invented_part
from core.layers.params import INVENTED, Parameterised, Params, Target, generator, release, unusable
from core.layers.parts import cut_part, whole_site
from core.layers.roles import whole
from core.ops.products import opened

if TYPE_CHECKING:
    from core.api.forms import Part
    from core.api.products import Product
    from core.api.quantization import Format, LayerSite
    from core.api.weights import WeightTensor
    from core.layers.cuts import Cuts

BIAS = "bias"


class WeightGroup:
    """The weight of a layer, which an embedding and the head that is tied to it share.

    Args:
        readers: Whose the format and the product are, for errors.
        cuts: What of the stored tensors the layer takes; None: all of it.

    Attributes:
        product: Multiplies with the parameters.
        whole: The layer with the sizes that its tensors have in the checkpoint.
    """

    def __init__(
        self, site: LayerSite, form: Format, product: Product, readers: tuple[str, str], cuts: Cuts | None = None
    ) -> None:
        self.prefix = site.prefix
        self.cuts = cuts or whole(site)
        self.site, self.product, self.whole = site, product, whole_site(site, self.cuts)
        self.format, self.owners = form, readers
        with blamed(readers[0], f"stored() of {site.kind} '{site.prefix}'"):
            self.stored = [list(form.stored(self.whole, name)) for name, _ in site.parts]
        if site.bias:
            for stored in self.stored:
                stored.append(Stored(BIAS, (0, None), padded=(stored[0].padded[0] if stored else 1, 1)))
        with blamed(readers[1], f"sizes() of {site.kind} '{site.prefix}'"):
            self.sizes = product.sizes()
        self.layers: list[Parameterised] = []

    @property
    def identity(self) -> str:
        """Key of the group's final parameters among others made of the same checkpoint tensors; empty where
        the product names no layout.
        """
        product, layout = self.product, self.product.layout
        if not layout:
            return ""
        forms = [form.key for form in product.place.forms]
        sizes = [(name, tuple(shape), str(dtype)) for name, (shape, dtype) in self.sizes.items()]
        kind = f"{type(product).__module__}.{type(product).__qualname__}"
        made = (kind, layout, self.owners, product.place.method, dict(product.place.dims), str(product.place.dtype))
        return repr((self.site, self.cuts, forms, sizes, made))

    def kept(self, params: Params) -> KeptFilling:
        """Return the filling that has final parameters already, of a group of the same identity."""
        return KeptFilling(self, params)

    def undivided(self, index: int) -> bool:
        """Whether a part is read as a whole, and cut then: one of its tensors cannot be taken in pieces."""
        complete = self.cuts.outputs[index].complete and self.cuts.inputs.complete
        return not complete and any(one.whole for one in self.stored[index])

    def read(self, index: int, tensors: Mapping[str, WeightTensor]) -> Part:
        """Return a part as the format reads it, with what this layer takes."""
        undivided = self.undivided(index)
        site = self.whole if undivided else self.site
        name, rows = site.parts[index]
        part = self.format.read(site, name, tensors)
        _check_rows(part, rows, f"{self.owners[0]}: read() of '{site.module(name)}'")
        return cut_part(part, self.cuts.outputs[index], self.cuts.inputs, site.module(name)) if undivided else part

    @property
    def final_bytes(self) -> int:
        """Bytes of the parameters."""
        return sum(math.prod(shape) * dtype.itemsize for shape, dtype in self.sizes.values())

    def targets(self) -> dict[str, Target]:
        """Return checkpoint tensor name -> where it goes."""
        return {
            f"{self.site.module(name)}.{one.suffix}": Target(self, (index, one.suffix), one.optional)
            # The tensors of a fused module have one target for all parts.
            for index, (name, _) in enumerate(self.site.parts[: 1 if self.site.fused else None])
            for one in self.stored[index]
        }

    def filling(self, device: torch.device) -> WeightFilling:
        """Return new storage, to be filled."""
        return WeightFilling(self, device)

    def invented(self, device: torch.device) -> list[tuple[Parameterised, Params]]:
        """Return every layer with made-up parameters, in the forms of the checkpoint."""
        params, random = _allocated(self.sizes, device), generator(self.prefix, device)
        for index, (name, rows) in enumerate(self.site.parts):
            with blamed(self.owners[0], f"form() of {self.site.kind} '{self.prefix}'"):
                form = self.format.form(self.site, name)
            part = invented_part(form, rows, self.site.in_features, random)
            if self.site.bias:
                part.bias = torch.randn(rows, generator=random, device=device) * INVENTED
            part.decode = partial(opened, replace(part))
            with blamed(self.owners[1], f"pack() of '{self.site.module(name)}'"):
                self.product.pack(part, index, params)
        with blamed(self.owners[1], f"finish() of '{self.prefix}'"):
            ready = self.product.finish(params)
        return [(layer, ready) for layer in self.layers]


class KeptFilling:
    """Final parameters that were kept: the checkpoint's tensors are let go unread."""

    def __init__(self, group: WeightGroup, params: Params) -> None:
        self._group, self._params = group, params

    def take(self, key: Hashable, tensor: WeightTensor) -> int:
        """Let the tensor go."""
        release(tensor)
        return 0

    def ready(self) -> list[tuple[Parameterised, Params]]:
        """Return every layer with its parameters."""
        return [(layer, self._params) for layer in self._group.layers]


class WeightFilling:
    """New parameters of a layer's weight. Each part is read and packed as soon as its tensors are there."""

    def __init__(self, group: WeightGroup, device: torch.device) -> None:
        self._group, self._device = group, device
        self._given: list[dict[str, WeightTensor]] = [{} for _ in group.site.parts]
        self._params: Params | None = None
        self._ready: Params | None = None
        self._unpacked = set(range(len(group.site.parts)))

    def take(self, key: Hashable, tensor: WeightTensor) -> int:
        """Keep what a part takes of a tensor until its others are there; return the bytes that were packed."""
        index, suffix = cast("tuple[int, str]", key)
        if not self._group.site.fused:
            return self._give(index, suffix, tensor)
        last = _LastOf(len(self._given), partial(release, tensor))
        return sum(self._give(part, suffix, tensor, last) for part in range(len(self._given)))

    def _give(self, index: int, suffix: str, tensor: WeightTensor, done: _LastOf | None = None) -> int:
        group, given = self._group, self._given[index]
        stored = next(one for one in group.stored[index] if one.suffix == suffix)
        module = group.site.module(group.site.parts[index][0])
        cuts = group.cuts.outputs[index], group.cuts.inputs
        if group.undivided(index) and suffix != BIAS:
            cuts = Cut.all(cuts[0].whole), Cut.all(cuts[1].whole)
        given[suffix] = cut_tensor(tensor, stored, cuts, module, done)
        return self._pack(index) if len(given) == len(group.stored[index]) else 0

    def ready(self) -> list[tuple[Parameterised, Params]]:
        """Return every layer with its parameters."""
        for index in sorted(self._unpacked):  # what is optional did not come
            self._pack(index)
        ready = self._ready or {}
        return [(layer, ready) for layer in self._group.layers]

    def _pack(self, index: int) -> int:
        group, given = self._group, self._given[index]
        if self._params is None:
            self._params = _allocated(group.sizes, self._device)
        module = group.site.module(group.site.parts[index][0])
        try:
            part = self._read(index, module)
            with blamed(group.owners[1], f"pack() of '{module}'"):
                group.product.pack(part, index, self._params)
        except CheckpointError as error:
            told = located(error, given.values(), module)
            if told is error:
                raise
            raise told from error
        for tensor in given.values():
            release(tensor)
        given.clear()
        self._unpacked.remove(index)
        if not self._unpacked:
            with blamed(group.owners[1], f"finish() of '{group.prefix}'"):
                self._ready = group.product.finish(self._params)
            self._params = None
        return group.final_bytes // len(self._given)

    def _read(self, index: int, module: str) -> Part:
        """Return a part with its bias, and with what opens its codes."""
        given, rows = self._given[index], self._group.site.parts[index][1]
        with unusable(f"layer '{module}'"):
            part = self._group.read(index, {key: one for key, one in given.items() if key != BIAS})
            check_scales(part, given.values(), module)
            if BIAS in given:
                part.bias = given[BIAS].dense(torch.float32).view(rows)
        if part.decode is None:
            part.decode = partial(opened, replace(part))  # a copy: no cycle that would keep its tensors
        return part


def _allocated(sizes: Mapping[str, tuple[tuple[int, ...], torch.dtype]], device: torch.device) -> Params:
    return {name: torch.empty(shape, dtype=dtype, device=device) for name, (shape, dtype) in sizes.items()}


def _check_rows(part: Part, rows: int, what: str) -> None:
    """Raise `PluginError` CORE-P108 unless a part has the outputs of its place."""
    shape = tuple(part.codes.shape)
    if len(shape) != 2 or shape[0] != rows:
        raise PluginError("CORE-P108", f"{what} made codes of shape {shape} for {rows} outputs.")


class _LastOf:
    """Calls a function when it was itself called `times` times."""

    def __init__(self, times: int, function: Callable[[], None]) -> None:
        self._left, self._function = times, function

    def __call__(self) -> None:
        self._left -= 1
        if not self._left:
            self._function()
