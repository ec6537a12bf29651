"""The products: parts of a weight as they are stored, opened tile by tile while they are multiplied with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from core.api import Product
from core.api.quantization import ROUTER
from core_plugin_kernels_triton.products import pack as packing
from core_plugin_kernels_triton.products.cards import card
from core_plugin_kernels_triton.products.kernels.kinds import FLOATS, INTEGERS, MICROSCALED, OPENED
from core_plugin_kernels_triton.products.launches import launch_multiply, launch_rows_of
from core_plugin_kernels_triton.products.options import ProductOptions
from core_plugin_kernels_triton.products.rounding import kind_of, prepared, shared_scale
from core_plugin_kernels_triton.products.runs import FIXABLE, Run, runs
from core_plugin_kernels_triton.products.stored import FLOAT8

if TYPE_CHECKING:
    from core.api import Part, ProductPlace, WeightForm
    from core_plugin_kernels_triton.products.stored import Stored

_RUN = 128
"""Inputs of a tile in float8: each has one scale of activations and of weights."""

_FLOAT8 = ("float8:token", "float8:tensor", "float8:128")
"""Activations in e4m3 whose scales lie outside of the sums of a tile."""

_MICROSCALED = frozenset(
    [
        *((codes, 1, 32, "e8m0", rounding) for codes in (*FLOAT8, "e2m1") for rounding in ("float8:32", "e2m1:32")),
        ("e2m1", 1, 16, "e4m3", "e2m1:16"),
    ]
)
"""Codes, outputs, inputs, scales and activations of forms whose runs of inputs have scales on both sides."""

_HEADS = frozenset({"embedding", "lm_head", ROUTER})
"""Layers whose results stay in float32: steps of bfloat16 are an eighth where logits are about 20."""


class StoredProduct(Product):
    """Parameters of run `i`: `codes_i (outputs, bytes)` uint8; where the form has them `scales_i` and `zeros_i`
    `(outputs / shared, groups)`, `row_scales_i (outputs,)`, `group_of_i (inputs,)` and `table_i (16,)`;
    `input_scale_i ()`, the scale of activations if the checkpoint fixes it, or 0. And `bias (outputs,)` float32.
    """

    def __init__(self, place: ProductPlace, options: Mapping[str, Any]) -> None:
        super().__init__(place, options)
        site = place.site
        self._alike = ProductOptions.model_validate(dict(options)).batch_invariant
        self._runs = list(runs(place.forms, [rows for _, rows in site.parts], site.in_features))
        self._of_part = {index: run for run in self._runs for index in run.parts}
        self._result = torch.float32 if site.kind in _HEADS else place.dtype
        self._how = [how(run.form, place.device) for run in self._runs]
        self._wide = site.kind == ROUTER

    def sizes(self) -> packing.Sizes:
        """Return what each run is made of, and the bias."""
        site = self.place.site
        found: packing.Sizes = {"bias": ((site.rows,), torch.float32)} if site.bias else {}
        for run in self._runs:
            own = packing.sizes(run.stored, run.rows, site.in_features)
            if run.form.activations in FIXABLE:
                own["input_scale"] = ((), torch.float32)
            found |= {run.named(name): size for name, size in own.items()}
        return found

    def pack(self, part: Part, index: int, out: Mapping[str, Tensor]) -> None:
        """Write the part into its run."""
        run = self._of_part[index]
        own = run.params(out)
        first = run.parts[index]
        packing.pack(part, run.form, run.stored, own, first)
        if part.bias is not None:
            out["bias"].narrow(0, run.first + first, len(part.bias)).copy_(part.bias)
        if "input_scale" in own:
            own["input_scale"].copy_(torch.zeros(()) if part.input_scale is None else part.input_scale)

    def apply(self, x: Tensor, params: Mapping[str, Tensor]) -> Tensor:
        """Return `rounded(x) @ weight.T + bias`."""
        out = torch.empty((len(x), self.place.site.rows), dtype=self._result, device=x.device)
        if not out.numel():
            return out
        bias = params.get("bias")
        for run, kind in zip(self._runs, self._how, strict=True):
            some = None if bias is None else bias.narrow(0, run.first, run.rows)
            self._multiply(x, run, kind, run.params(params), some, out.narrow(1, run.first, run.rows))
        return out

    def look_up(self, ids: Tensor, params: Mapping[str, Tensor]) -> Tensor:
        """Return the rows of these token ids, opened to the compute dtype."""
        (run,) = self._runs
        out = torch.empty((ids.numel(), self.place.site.in_features), dtype=self.place.dtype, device=ids.device)
        if out.numel():
            launch_rows_of(ids.flatten(), *weight_of(run.stored, run.params(params)), out)
        return out.view(*ids.shape, out.shape[1])

    def _multiply(
        self, x: Tensor, run: Run, kind: int, params: Mapping[str, Tensor], bias: Tensor | None, out: Tensor
    ) -> None:
        activations = run.form.activations
        given = prepared(x, activations, kind, shared_scale(x, activations, params.get("input_scale")))
        weight, inputs, codes = weight_of(run.stored, params), x.shape[1], kind_of(activations)
        launch_multiply(*given, *weight, bias, out, inputs, kind, codes, self._wide, self._alike)


def how(form: WeightForm, device: torch.device) -> int:
    """Return in what a device multiplies weights of a form: integers, float8, runs with scales, the compute dtype."""
    plain = not (form.zeros or form.ordered)
    if form.codes == "int" and form.bits == 8 and plain and not form.inputs and form.activations == "int8:token":
        return INTEGERS.value
    runs_fit = form.inputs % _RUN == 0 and form.scale in ("float32", "e8m0")
    fits = form.codes == "float8_e4m3fn" and plain and runs_fit and form.activations in _FLOAT8
    if fits and card(device).float8:
        return FLOATS.value
    scaled = (form.codes, form.outputs, form.inputs, form.scale, form.activations) in _MICROSCALED
    return MICROSCALED.value if scaled and plain and form.scale in card(device).scaled else OPENED.value


def weight_of(stored: Stored, params: Mapping[str, Tensor]) -> tuple[Any, ...]:
    """Return what launches take of a weight."""
    names = ("codes", "scales", "zeros", "group_of", "table", "row_scales")
    tensors = (params.get(name) for name in names)
    return (*tensors, stored.kind, stored.bits, stored.scale, stored.group, stored.shared)
