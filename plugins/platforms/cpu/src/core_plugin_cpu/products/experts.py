"""Products with the weights of all experts of a layer: the parts of each are packed into a row of bytes of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from core.api import Product
from core_plugin_cpu.native import experts
from core_plugin_cpu.native.experts import PackedExperts
from core_plugin_cpu.options import ProductOptions
from core_plugin_cpu.products.choice import as_stored, opened
from core_plugin_cpu.products.packings import Dense, layout_of
from core_plugin_cpu.products.runs import Layout

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from torch import Tensor

    from core.api import Part, ProductPlace, WeightForm
    from core_plugin_cpu.products.packings import Packing


class _Opened(Product):
    """Weights of all experts, opened to the compute dtype. What follows `_packing` may keep them as they are stored.

    Parameters: `weight (experts, bytes of one)` uint8; `bias (experts, outputs of one)` float32.
    """

    def __init__(self, place: ProductPlace, options: Mapping[str, Any]) -> None:
        super().__init__(place, options)
        site = place.site
        self._parts = len(site.parts) // site.experts
        rows = [rows for _, rows in site.parts[: self._parts]]
        self._packings = [self._of_all(place.forms[part :: self._parts]) for part in range(self._parts)]
        self._asked = self._flags()
        self._layout = Layout(self._packings, rows, site.in_features)
        self._runs = list(self._layout.runs(joined=True))

    @property
    def layout(self) -> str:
        """The formats of all parts, for this library and instruction set."""
        return layout_of(self._packings)

    def sizes(self) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
        """Return the packed bytes of all experts, and their biases."""
        site = self.place.site
        sizes: dict[str, tuple[tuple[int, ...], torch.dtype]] = {
            "weight": ((site.experts, self._layout.size), torch.uint8)
        }
        if site.bias:
            sizes["bias"] = ((site.experts, self._layout.outputs), torch.float32)
        return sizes

    def pack(self, part: Part, index: int, out: Mapping[str, Tensor]) -> None:
        """Pack one matrix of an expert into its bytes."""
        expert, place = divmod(index, self._parts)
        start, end = self._layout.starts[place : place + 2]
        self._packings[place].pack(part, out["weight"][expert, start:end], None)
        if part.bias is not None:
            out["bias"][expert].narrow(0, self._layout.firsts[place], len(part.bias)).copy_(part.bias)

    def _packing(self, form: WeightForm) -> Packing:
        return opened(form, self.place.dtype)

    def _flags(self) -> int:
        return 0

    def _of_all(self, forms: Sequence[WeightForm]) -> Packing:
        """Return the packing of one matrix of every expert. It is one for all, and rearranges no inputs."""
        packing = self._packing(forms[0])
        alike = not packing.ordered and all(form == forms[0] for form in forms)
        return packing if alike else Dense(self.place.dtype)

    def _products(
        self, params: Mapping[str, Tensor], y: Tensor
    ) -> Iterator[tuple[PackedExperts, Tensor | None, Tensor]]:
        """Yield weights, biases and the columns of `y` that they give, run by run."""
        weight, bias, inputs = params["weight"], params.get("bias"), self.place.site.in_features
        for run in self._runs:
            packed = PackedExperts(run.kind, run.rows, inputs, weight.narrow(1, run.start, run.size), self._asked)
            some = None if bias is None else bias.narrow(1, run.first, run.rows)
            yield packed, some, y.narrow(1, run.first, run.rows)

    def _empty(self, rows: int) -> Tensor:
        return torch.empty(rows, self._layout.outputs, dtype=self.place.dtype)


class DenseExpertsIn(_Opened):
    """The product that reads hidden states, with weights opened to the compute dtype."""

    def apply(self, x: Tensor, ids: Tensor, params: Mapping[str, Tensor]) -> Tensor:  # type: ignore[override]
        """`x (T, inputs)`, `ids (T, k)` int32 -> `(T * k, outputs of one expert)`, by expert; zeros without one."""
        y = self._empty(ids.numel())
        for weight, bias, columns in self._products(params, y):
            experts.experts_in(x, ids, weight, bias, columns)
        return y


class DenseExpertsOut(_Opened):
    """The product whose results are weighed and summed up for each token, likewise."""

    def apply(  # type: ignore[override]
        self, x: Tensor, weights: Tensor, ids: Tensor, params: Mapping[str, Tensor]
    ) -> Tensor:
        """`x (T * k, inputs)` by expert, `weights (T, k)`, `ids (T, k)` int32 -> `(T, outputs of one expert)`."""
        y = self._empty(ids.shape[0])
        for weight, bias, columns in self._products(params, y):
            experts.experts_out(x, weights, ids, weight, bias, columns)
        return y


class _Stored(_Opened):
    """Weights of all experts as they are stored, where there is a kernel and all experts have one form."""

    def __init__(self, place: ProductPlace, options: Mapping[str, Any]) -> None:
        self._options = ProductOptions.model_validate(dict(options))
        super().__init__(place, options)

    def _flags(self) -> int:
        return self._options.asked

    def _packing(self, form: WeightForm) -> Packing:
        return as_stored(form, self.place.site.in_features)


class ExpertsIn(_Stored, DenseExpertsIn):
    """The product that reads hidden states, with weights as they are stored."""


class ExpertsOut(_Stored, DenseExpertsOut):
    """The product whose results are weighed and summed up for each token, likewise."""
