"""The format `modelopt`: codes in e2m1 or e4m3, with scales as their algorithm has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from core_plugin_unquantized.packing import codes_of_bytes
from core_plugin_unquantized.plain import Plain

from core.api import Part, Stored
from core_plugin_modelopt.config import ModelOptConfig, ModelOptOptions, contradicted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from core.api import LayerSite, QuantContext, WeightForm, WeightTensor

_DTYPES = {
    "e2m1": torch.uint8,
    "float8_e4m3fn": torch.float8_e4m3fn,
    "e4m3": torch.float8_e4m3fn,
    "e8m0": torch.uint8,
    "float32": torch.float32,
}
"""Of codes, and of scales, by their kind in a form."""


class ModelOpt(Plain):
    """Codes, scales, and the scale of activations.

    `weight (rows, in)` in e4m3, or two codes of e2m1 to a byte, `(rows, in / 2)`. `weight_scale`: one number,
    `(rows,)`, `(rows / 128, 1, in / 128, 1)`, `(rows, in / 16)` in e4m3 with `weight_scale_2`, one number for all; or
    `(rows, in / 32)`, bytes of exponents. `input_scale`: one number.
    """

    def __init__(self, ctx: QuantContext) -> None:
        super().__init__(ctx)
        self._config = ModelOptConfig.read(ctx.checkpoint)
        rounds = ModelOptOptions.model_validate(dict(ctx.options)).activations == "checkpoint"
        self._form = self._config.form if rounds else self._config.form.replace(activations="as_is")

    def form(self, site: LayerSite, part: str) -> WeightForm:
        """Return the form of codes, or the plain form."""
        return self._form if self._config.quantizes(site, part) else super().form(site, part)

    def stored(self, site: LayerSite, part: str) -> Sequence[Stored]:
        """Return codes and scales of a quantized layer."""
        if not self._config.quantizes(site, part):
            return super().stored(site, part)
        form = self._form
        packed = form.codes == "e2m1"
        codes = Stored("weight", per=(1, 16), unit=(1, 8)) if packed else Stored("weight")
        # Blocks have a dimension of one element behind each of their own.
        axes = (0, 2) if form.outputs > 1 else (0 if form.outputs else None, 1 if form.inputs else None)
        scales = Stored("weight_scale", axes, per=(max(1, form.outputs), max(1, form.inputs)))
        whole = (Stored("weight_scale_2", (None, None)),) if packed else ()
        return codes, scales, *whole, Stored("input_scale", (None, None), optional=True)

    def read(self, site: LayerSite, part: str, tensors: Mapping[str, WeightTensor]) -> Part:
        """Return codes and scales as they are stored."""
        if not self._config.quantizes(site, part):
            return super().read(site, part, tensors)
        form = self._form
        codes = _of_dtype(tensors["weight"], _DTYPES[form.codes])
        if form.scale == "float32":
            scales = tensors["weight_scale"].dense(torch.float32)
        else:
            scales = _of_dtype(tensors["weight_scale"], _DTYPES[form.scale])
        columns = -(-site.in_features // form.inputs) if form.inputs else 1
        fixed, whole = tensors.get("input_scale"), tensors.get("weight_scale_2")
        return Part(
            form,
            codes_of_bytes(codes) if form.codes == "e2m1" else codes,
            scales.reshape(-1, columns),
            tensor_scale=None if whole is None else whole.dense(torch.float32).view(()),
            input_scale=None if fixed is None else fixed.dense(torch.float32).view(()),
        )


def _of_dtype(tensor: WeightTensor, dtype: torch.dtype) -> Tensor:
    values = tensor.raw()
    if values.dtype != dtype:
        raise contradicted(f"'{tensor.name}' holds {values.dtype}, not {dtype}")
    return values
