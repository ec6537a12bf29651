"""Products in plain torch: how weights of each form are opened, and the product that serves all of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from core.api.forms import Part
from core.api.products import Product
from core.api.quantization import ROUTER
from core.ops.rounding import FIXABLE, rounded

if TYPE_CHECKING:
    from torch import Tensor

    from core.api.forms import WeightForm
    from core.api.products import Sizes

CHUNK = 1 << 15
"""Values opened at once: no float32 copy of a whole weight is made."""

E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""Values of the codes 0 to 7; bit 3 is the sign."""

NF4 = (
    *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635),
    *(-0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725),
    *(0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
)
"""Values of the codes 0 to 15: quantiles of the normal distribution, as published with QLoRA."""

FP4 = (0.0, 0.0052083333, 0.6666666667, 1.0, 0.3333333333, 0.5, 0.1666666667, 0.25)
"""Values of the codes 0 to 7 of bitsandbytes' four-bit floats; bit 3 is the sign."""

_TABLES = {"nf4": NF4} | {
    name: (*values, *(-value for value in values)) for name, values in (("e2m1", E2M1), ("fp4", FP4))
}
_FLOATS = {"float8_e4m3fn": torch.float8_e4m3fn, "float8_e5m2": torch.float8_e5m2}
_SCALES = {"float32": torch.float32, "e8m0": torch.uint8, "e4m3": torch.float8_e4m3fn}


def opens(form: WeightForm) -> bool:
    """Whether core knows the codes of a form."""
    return form.codes in {"plain", "int", *_TABLES, *_FLOATS}


def opened(part: Part, dtype: torch.dtype, out: Tensor | None = None) -> Tensor:
    """Return the values of a part, `(outputs, inputs)`.

    Args:
        out: Where to write them; by default memory of their own, or plain codes as they are.

    Raises:
        ValueError: Core does not know its codes, or its scales.
    """
    form, codes = part.form, part.codes
    if form.codes == "plain":
        return codes.to(dtype) if out is None else out.copy_(codes)
    if not opens(form):
        raise ValueError(f"core has no values for codes '{form.codes}'")
    scales = None if part.scales is None else _scales(part.scales, form.scale)
    out = torch.empty(codes.shape, dtype=dtype, device=codes.device) if out is None else out
    step = max(1, CHUNK // max(1, codes.shape[1]))
    for start in range(0, len(codes), step):
        rows = range(start, min(start + step, len(codes)))
        values = _values(codes[start : rows.stop], form.codes)
        if part.zeros is not None:
            values = values - _spread(part.zeros, part, rows).float()
        if scales is not None:
            values = values * _spread(scales, part, rows)
        if part.tensor_scale is not None:
            values = values * part.tensor_scale
        out[start : rows.stop] = values
    return out


def _values(codes: Tensor, kind: str) -> Tensor:
    if kind in _TABLES:
        return torch.tensor(_TABLES[kind], device=codes.device)[codes.long()]
    return (codes.view(_FLOATS[kind]) if kind in _FLOATS else codes).float()


def _scales(scales: Tensor, kind: str) -> Tensor:
    """Return scales in float32: they come as such, or as the bytes of their type."""
    if kind not in _SCALES:
        raise ValueError(f"core knows no scales '{kind}'; it knows {', '.join(sorted(_SCALES))}")
    if kind != "e8m0":
        return scales.view(_SCALES[kind]).float()
    exponents = scales.view(torch.uint8).int()
    powers = torch.ldexp(torch.ones_like(exponents, dtype=torch.float32), exponents - 127)
    return torch.where(exponents == 255, torch.nan, powers)


def _spread(shared: Tensor, part: Part, rows: range) -> Tensor:
    """Return what outputs and inputs share for each of them: `(rows or 1, inputs or 1)`."""
    form, inputs = part.form, part.codes.shape[1]
    if shared.shape[0] > 1:
        index = torch.arange(rows.start, rows.stop, device=shared.device) // max(1, form.outputs)
        shared = shared[index]
    if part.group_of is not None:
        return shared[:, part.group_of.long()]
    if form.inputs and shared.shape[1] > 1:
        shared = shared.repeat_interleave(form.inputs, dim=1)[:, :inputs]
    return shared


class ReferenceProduct(Product):
    """Opens every part to the compute dtype and multiplies with torch: right for each form, on each device."""

    @property
    def layout(self) -> str:
        """Rows, as they are opened; a subclass may write something else."""
        return "rows 1" if type(self) is ReferenceProduct else ""

    def sizes(self) -> Sizes:
        """Return one matrix, a bias if the layer has one, and the scales of activations that checkpoints may fix."""
        site, dtype = self.place.site, self.place.dtype
        sizes: dict[str, tuple[tuple[int, ...], torch.dtype]] = {"weight": ((site.rows, site.in_features), dtype)}
        if site.bias:
            sizes["bias"] = ((site.rows,), dtype)
        if any(form.activations in FIXABLE for form in self.place.forms):
            sizes["input_scales"] = ((len(site.parts),), torch.float32)
        return sizes

    def pack(self, part: Part, index: int, out: Mapping[str, Tensor]) -> None:
        """Open the part into its rows."""
        start = sum(rows for _, rows in self.place.site.parts[:index])
        rows = self.place.site.parts[index][1]
        weight = out["weight"].narrow(0, start, rows)
        if opens(part.form):
            opened(part, weight.dtype, weight)  # without a copy of all values
        else:
            weight.copy_(part.dense(weight.dtype))
        if part.bias is not None:
            out["bias"].narrow(0, start, rows).copy_(part.bias)
        if "input_scales" in out:
            out["input_scales"][index] = 0 if part.input_scale is None else part.input_scale

    def apply(self, x: Tensor, params: Mapping[str, Tensor]) -> Tensor:
        """Return `rounded(x) @ weight.T + bias`."""
        forms: tuple[WeightForm, ...] = self.place.forms
        kinds, scales = {form.activations for form in forms}, params.get("input_scales")
        if self.place.site.kind == ROUTER:
            x, params = x.float(), {name: one.float() for name, one in params.items()}
        if len(kinds) == 1 and scales is None:
            return functional.linear(rounded(x, kinds.pop()), params["weight"], params.get("bias"))
        weights = torch.split(params["weight"], [rows for _, rows in self.place.site.parts])
        fixed = [None] * len(forms) if scales is None else list(scales)
        inputs = [rounded(x, form.activations, scale) for form, scale in zip(forms, fixed, strict=True)]
        y = torch.cat([functional.linear(*pair) for pair in zip(inputs, weights, strict=True)], dim=-1)
        return y + params["bias"] if "bias" in params else y

    def look_up(self, ids: Tensor, params: Mapping[str, Tensor]) -> Tensor:
        """Return the rows of the matrix."""
        return functional.embedding(ids, params["weight"])
