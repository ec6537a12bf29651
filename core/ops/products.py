"""Products in plain torch: how weights of each form are opened, and the product that serves all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from core.api.forms import AS_IS, Part
from core.api.products import Product

if TYPE_CHECKING:
    from torch import Tensor

    from core.api.forms import WeightForm
    from core.api.products import Sizes


def opened(part: Part, dtype: torch.dtype) -> Tensor:
    """Return the values of a part, `(outputs, inputs)`. Raises `ValueError` for codes that core does not know."""
    form = part.form
    if form.codes == "plain":
        return part.codes.to(dtype)
    if form.codes != "int" and not form.codes.startswith("float8"):
        raise ValueError(f"core has no values for codes '{form.codes}'")
    values = part.codes.float()
    if part.zeros is not None:
        values = values - _spread(part.zeros.float(), part)
    if part.scales is not None:
        values = values * _spread(part.scales.float(), part)
    if part.tensor_scale is not None:
        values = values * part.tensor_scale
    return values.to(dtype)


def _spread(shared: Tensor, part: Part) -> Tensor:
    """Return what outputs and inputs share, for each of them: `(outputs or 1, inputs or 1)`."""
    form, (outputs, inputs) = part.form, part.codes.shape
    if part.group_of is not None:
        shared = shared[:, part.group_of.long()]
    elif form.inputs and shared.shape[1] > 1:
        shared = shared.repeat_interleave(form.inputs, dim=1)[:, :inputs]
    if form.outputs > 1 and shared.shape[0] > 1:
        shared = shared.repeat_interleave(form.outputs, dim=0)[:outputs]
    return shared


def rounded(x: Tensor, activations: str) -> Tensor:
    """Return activations `(tokens, inputs)` rounded as a form says, in their own dtype.

    Raises:
        ValueError: No such rounding is known.
    """
    if activations == AS_IS:
        return x
    if activations not in _ROUNDINGS:
        raise ValueError(f"core knows no activations '{activations}'")
    return _ROUNDINGS[activations](x.float()).to(x.dtype)


def round_int8(x: Tensor) -> Tensor:
    """Return every token rounded to 255 steps between its largest magnitudes."""
    scale = x.abs().amax(dim=-1, keepdim=True) / 127
    scale = torch.where(scale > 0, scale, 1.0)
    return torch.round(x / scale) * scale


_ROUNDINGS: Mapping[str, Callable[[Tensor], Tensor]] = {"int8:token": round_int8}


class ReferenceProduct(Product):
    """Opens every part to the compute dtype and multiplies with torch: right for each form, on each device."""

    def sizes(self) -> Sizes:
        """Return one matrix, and a bias if the layer has one."""
        site, dtype = self.place.site, self.place.dtype
        weight = {"weight": ((site.rows, site.in_features), dtype)}
        return {**weight, "bias": ((site.rows,), dtype)} if site.bias else weight

    def pack(self, part: Part, index: int, out: Mapping[str, Tensor]) -> None:
        """Open the part into its rows."""
        start = sum(rows for _, rows in self.place.site.parts[:index])
        rows = self.place.site.parts[index][1]
        out["weight"].narrow(0, start, rows).copy_(part.dense(self.place.dtype))
        if part.bias is not None:
            out["bias"].narrow(0, start, rows).copy_(part.bias)

    def apply(self, x: Tensor, params: Mapping[str, Tensor]) -> Tensor:
        """Return `rounded(x) @ weight.T + bias`."""
        forms: tuple[WeightForm, ...] = self.place.forms
        kinds = {form.activations for form in forms}
        if len(kinds) == 1:
            return functional.linear(rounded(x, kinds.pop()), params["weight"], params.get("bias"))
        weights = torch.split(params["weight"], [rows for _, rows in self.place.site.parts])
        pairs = zip(forms, weights, strict=True)
        y = torch.cat([functional.linear(rounded(x, form.activations), weight) for form, weight in pairs], dim=-1)
        return y + params["bias"] if "bias" in params else y

    def look_up(self, ids: Tensor, params: Mapping[str, Tensor]) -> Tensor:
        """Return the rows of the matrix."""
        return functional.embedding(ids, params["weight"])
