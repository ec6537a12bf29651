"""Products with the weights of all experts of a layer as they are stored, opened tile by tile."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from core.api import CheckpointError, Part, ProductPlace
from core.api.forms import AS_IS
from core_plugin_kernels_triton.experts.launches import launch_stored
from core_plugin_kernels_triton.experts.products import ExpertsIn, ExpertsOut, Opened
from core_plugin_kernels_triton.experts.scales import scales_of_rows
from core_plugin_kernels_triton.experts.sort import by_expert
from core_plugin_kernels_triton.products import pack as packing
from core_plugin_kernels_triton.products.layers import how, weight_of
from core_plugin_kernels_triton.products.rounding import kind_of, prepared
from core_plugin_kernels_triton.products.runs import FIXABLE, Run, runs

if TYPE_CHECKING:
    from core.api.products import Sizes


class _Stored(Opened):
    """Parameters of run `i`: those of `products.layers.StoredProduct` for each expert, `table_i` for all of them;
    `input_scale_i (experts,)`, scales of activations that the checkpoint fixes, or 0. And `bias (experts, rows)`
    float32. Where one matrix has several forms among the experts all are opened, as those of `Opened`.
    """

    def __init__(self, place: ProductPlace, options: Mapping[str, Any]) -> None:
        super().__init__(place, options)
        site = place.site
        self._each = len(site.parts) // site.experts
        self._rows = sum(rows for _, rows in site.parts[: self._each])
        self._runs: list[Run] = []
        forms = place.forms[: self._each]
        if forms * site.experts == tuple(place.forms):
            self._runs = list(runs(forms, [rows for _, rows in site.parts[: self._each]], site.in_features))
        else:
            _require_as_is(place)
        self._of_part = {index: run for run in self._runs for index in run.parts}
        self._how = [how(run.form, place.device) for run in self._runs]

    def sizes(self) -> Sizes:
        """Return what each run is made of, and the biases."""
        if not self._runs:
            return super().sizes()
        site = self.place.site
        found: packing.Sizes = {"bias": ((site.experts, self._rows), torch.float32)} if site.bias else {}
        for run in self._runs:
            own = packing.sizes(run.stored, run.rows, site.in_features)
            every = {
                name: (shape if name == "table" else (site.experts, *shape), dtype)
                for name, (shape, dtype) in own.items()
            }
            if run.form.activations in FIXABLE:
                every["input_scale"] = ((site.experts,), torch.float32)
            found |= {run.named(name): size for name, size in every.items()}
        return found

    def pack(self, part: Part, index: int, out: Mapping[str, Tensor]) -> None:
        """Write one matrix of an expert into its run."""
        if not self._runs:
            super().pack(part, index, out)
            return
        expert, place = divmod(index, self._each)
        run = self._of_part[place]
        params, first = run.params(out), run.parts[place]
        own = {name: one if name == "table" else one[expert] for name, one in params.items()}
        packing.pack(part, run.form, run.stored, own, first)
        if part.bias is not None:
            out["bias"][expert].narrow(0, run.first + first, len(part.bias)).copy_(part.bias)
        if "input_scale" in own:
            own["input_scale"].copy_(torch.zeros(()) if part.input_scale is None else part.input_scale)

    def _multiply(self, x: Tensor, ids: Tensor, params: Mapping[str, Tensor], *, into: bool) -> Tensor:
        """Return the products of all pairs: by expert where hidden states come in, else by token."""
        if not self._runs:
            return super()._multiply(x, ids, params, into=into)
        out = x.new_empty(ids.numel(), self._rows)
        if not out.numel():
            return out
        order, starts = by_expert(ids, self.place.site.experts)
        bias = params.get("bias")
        for run, kind in zip(self._runs, self._how, strict=True):
            own, activations = run.params(params), run.form.activations
            some = None if bias is None else bias.narrow(1, run.first, run.rows)
            rows, whole, sorted_ = x, None, not into
            if activations in FIXABLE:  # rows of a token that go to several experts are rounded in several ways
                rows = x.index_select(0, order // ids.shape[1]) if into else x
                whole, sorted_ = scales_of_rows(rows, activations, ids, order, own["input_scale"]), True
            given = prepared(rows if rows.stride(-1) == 1 else rows.contiguous(), activations, kind, whole)
            weight, columns = weight_of(run.stored, own), out.narrow(1, run.first, run.rows)
            launch_stored(
                *(*given, *weight, some, order, starts, columns, ids.shape[1], into, sorted_),
                *(x.shape[1], kind, kind_of(activations)),
            )
        return out


def _require_as_is(place: ProductPlace) -> None:
    """Raise `CheckpointError` CORE-M160 if experts of several forms have activations that are rounded."""
    rounded = sorted({form.key for form in place.forms if form.activations != AS_IS})
    if rounded:
        raise CheckpointError(
            "CORE-M160",
            f"the experts of {place.site.prefix} are stored in several forms, of which {', '.join(rounded)} rounds "
            "activations: Triton's products take one form of all experts, or activations as they are.",
            hint="Give --kernel experts_in=reference and --kernel experts_out=reference.",
        )


class StoredExpertsIn(_Stored, ExpertsIn):
    """The product that reads hidden states: each token's row meets the weights of all of its experts."""


class StoredExpertsOut(_Stored, ExpertsOut):
    """The product whose results are weighed and summed up for each token."""
