"""The format `compressed-tensors`: codes of integers and floats, packed or not, in schemes for groups of layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from core_plugin_unquantized.packing import codes_of_bytes, codes_of_words
from core_plugin_unquantized.plain import Plain

from core.api import Part, Stored
from core_plugin_compressed_tensors.config import CompressedConfig, CompressedOptions, contradicted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from core.api import LayerSite, QuantContext, WeightForm, WeightTensor
    from core_plugin_compressed_tensors.schemes import Scheme

PACKED = frozenset({"pack-quantized", "nvfp4-pack-quantized", "mxfp4-pack-quantized"})
"""Layouts whose codes are `weight_packed`."""


class CompressedFormat(Plain):
    """Codes in `weight` or `weight_packed`, scales in `weight_scale`, and what the scheme has besides.

    The parts of one layer may differ.
    """

    def __init__(self, ctx: QuantContext) -> None:
        super().__init__(ctx)
        self._config = CompressedConfig.read(ctx.checkpoint)
        self._rounds = CompressedOptions.model_validate(dict(ctx.options)).activations == "checkpoint"

    def form(self, site: LayerSite, part: str) -> WeightForm:
        """Return the form of codes, or the plain form."""
        scheme = self._config.scheme(site, part)
        return super().form(site, part) if scheme is None else self._form(scheme)

    def stored(self, site: LayerSite, part: str) -> Sequence[Stored]:
        """Return the tensors of a quantized layer. Where groups are in any order, all scales belong to each input."""
        scheme = self._config.scheme(site, part)
        if scheme is None:
            return super().stored(site, part)
        form = scheme.form
        grouped = form.inputs and not form.ordered
        axes, per = (0 if form.outputs else None, 1 if grouped else None), (max(1, form.outputs), max(1, form.inputs))
        return (
            _codes(scheme),
            Stored("weight_scale", axes, per=per, count=0 if form.ordered else 1),
            *(_zeros(scheme, axes[1], per[1]) if form.zeros else ()),
            *((Stored("weight_g_idx", (None, 0)),) if form.ordered else ()),
            *_alone(scheme),
        )

    def read(self, site: LayerSite, part: str, tensors: Mapping[str, WeightTensor]) -> Part:
        """Return codes one by one, and scales."""
        scheme = self._config.scheme(site, part)
        if scheme is None:
            return super().read(site, part, tensors)
        form = self._form(scheme)
        scales = _scales(form, tensors["weight_scale"], site.in_features)
        zeros = _zero_points(scheme, tensors, scales) if form.zeros else None
        group_of = tensors["weight_g_idx"].raw().long() if form.ordered else None
        if group_of is not None and not bool(((group_of >= 0) & (group_of < scales.shape[1])).all()):
            name = tensors["weight_g_idx"].name
            raise contradicted(f"'{name}' tells groups beyond the {scales.shape[1]} that have scales")
        whole, fixed = tensors.get("weight_global_scale"), _input_scale(tensors)
        tensor_scale = None if whole is None else _inverse(whole)
        return Part(form, _codes_of(scheme, tensors), scales, zeros, group_of, tensor_scale, fixed)

    def _form(self, scheme: Scheme) -> WeightForm:
        return scheme.form if self._rounds else scheme.form.replace(activations="as_is")


def _codes(scheme: Scheme) -> Stored:
    if scheme.layout == "pack-quantized":
        return Stored("weight_packed", per=(1, 32 // scheme.form.bits))
    if scheme.layout in PACKED:
        return Stored("weight_packed", per=(1, scheme.form.inputs), unit=(1, scheme.form.inputs // 2))
    return Stored("weight")


def _zeros(scheme: Scheme, axis: int | None, inputs: int) -> tuple[Stored, ...]:
    """Return the zero points of integers; packed ones follow each other along the outputs."""
    words = 32 // scheme.form.bits if scheme.layout == "pack-quantized" else 1
    return (Stored("weight_zero_point", (0, axis), per=(words, inputs)),)


def _alone(scheme: Scheme) -> tuple[Stored, ...]:
    """Return the tensors that have no outputs and inputs."""
    none = (None, None)
    if scheme.layout == "pack-quantized":
        return (Stored("weight_shape", none, count=2, optional=True),)
    if scheme.layout == "nvfp4-pack-quantized":
        return Stored("weight_global_scale", none), Stored("input_global_scale", none, optional=True)
    return (Stored("input_scale", none),) if scheme.fixed else ()


def _codes_of(scheme: Scheme, tensors: Mapping[str, WeightTensor]) -> Tensor:
    """Return the codes one by one, as the form has them: of integers without zero points the signed ones."""
    form, tensor = scheme.form, tensors["weight_packed" if scheme.layout in PACKED else "weight"]
    dtypes = {"int-quantized": torch.int8, "pack-quantized": torch.int32}
    due = dtypes.get(scheme.layout, torch.uint8 if scheme.layout in PACKED else torch.float8_e4m3fn)
    stored = tensor.raw()
    if stored.dtype != due:
        raise contradicted(f"'{tensor.name}' holds {stored.dtype}, not {due}")
    if scheme.layout == "int-quantized":
        if form.bits < 8:
            _check_range(tensor.name, stored, form.bits)
        return (stored.view(torch.uint8) + (1 << form.bits - 1)) if form.zeros else stored
    if scheme.layout != "pack-quantized":
        return codes_of_bytes(stored) if scheme.layout in PACKED else stored
    codes = codes_of_words(stored, form.bits)  # the middle stands for 0
    return codes if form.zeros else codes.sub_(1 << form.bits - 1).view(torch.int8)


def _check_range(name: str, stored: Tensor, bits: int) -> None:
    """Raise CORE-M160 where a byte holds more than `bits` bits: a product that packs them would cut it off."""
    low, high = (int(one) for one in stored.aminmax())
    half = 1 << bits - 1
    if low < -half or high >= half:
        raise contradicted(f"'{name}' holds values from {low} to {high}, not {-half} to {half - 1} of {bits} bits")


def _scales(form: WeightForm, tensor: WeightTensor, in_features: int) -> Tensor:
    """Return scales `(outputs or 1, groups)`, as the form has them."""
    if form.scale == "float32":
        scales = tensor.dense(torch.float32)
    else:
        scales = tensor.raw().view(torch.uint8) if form.scale == "e8m0" else tensor.raw()
    if form.ordered:
        return scales
    return scales.reshape(-1, -(-in_features // form.inputs) if form.inputs else 1)


def _zero_points(scheme: Scheme, tensors: Mapping[str, WeightTensor], scales: Tensor) -> Tensor:
    """Return zero points of unsigned codes, `(outputs or 1, groups)`."""
    stored = tensors["weight_zero_point"].raw()
    if scheme.layout == "int-quantized":
        return (stored.to(torch.int16) + (1 << scheme.form.bits - 1)).view(scales.shape)
    words = stored.view(-1, scales.shape[1]).t().contiguous()
    return codes_of_words(words, scheme.form.bits).t()[: len(scales)]


def _input_scale(tensors: Mapping[str, WeightTensor]) -> Tensor | None:
    """Return the fixed scale of activations; that of four bits is stored as what values are multiplied with."""
    if "input_scale" in tensors:
        return tensors["input_scale"].dense(torch.float32).view(())
    if "input_global_scale" in tensors:
        return _inverse(tensors["input_global_scale"])
    return None


def _inverse(tensor: WeightTensor) -> Tensor:
    """Return what values are multiplied with, of a scale that they were multiplied with: infinity would become 0."""
    scale = tensor.dense(torch.float32).view(())
    if not bool(scale.isfinite()) or float(scale) <= 0:
        raise contradicted(f"'{tensor.name}' is {float(scale):g}, which is no scale")
    return 1 / scale
