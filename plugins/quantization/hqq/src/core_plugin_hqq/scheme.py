"""The format `hqq`: linear layers of codes in groups, with a scale and a zero point that has fractions."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch
from core_plugin_unquantized.plain import Plain

from core.api import Part, Stored
from core_plugin_hqq.config import PACKED, HQQConfig, Settings, contradicted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from core.api import LayerSite, QuantContext, WeightForm, WeightTensor

CHECKED = ("nbits", "group_size", "axis", "shape")
"""Settings that a file may state beside a weight as well; they are held against the configuration."""

FURTHER = (
    *("channel_wise", "compute_dtype", "encoded_state_dict", "offload_meta", "optimize", "packing"),
    *("quant_scale", "quant_zero", "round_zero", "stores_quant_config", "unpack_view_dtype", "view_as_float"),
)
"""Further tensors that the library writes beside each weight; none of them is needed."""

_ALONE = (None, None)

CHUNK = 1 << 14
"""Elements unpacked at once."""


class HQQFormat(Plain):
    """`W_q`, packed codes; `scale` and `zero`, one for each group; and settings as tensors.

    The codes are a matrix whose rows (axis 1) or columns (axis 0) are groups. Its rows are packed: the first element
    holds, from the highest bits on, the first row of each of so many equal parts. So a rank reads all of a weight.
    """

    def __init__(self, ctx: QuantContext) -> None:
        super().__init__(ctx)
        self._config = HQQConfig.read(ctx.checkpoint)

    def form(self, site: LayerSite, part: str) -> WeightForm:
        """Return the form of codes, or the plain form."""
        settings = self._config.settings(site, part)
        return super().form(site, part) if settings is None else settings.form(site.in_features)

    def stored(self, site: LayerSite, part: str) -> Sequence[Stored]:
        """Return the tensors of a quantized layer."""
        settings = self._config.settings(site, part)
        if settings is None:
            return super().stored(site, part)
        outputs = dict(site.parts)[part]
        rows = -(-settings.groups(outputs, site.in_features)[0] // PACKED[settings.bits])
        return (
            Stored("W_q", (0, None), per=(outputs, 1), unit=(rows, 1), count=0, whole=True),
            *(Stored(name, _ALONE, count=0) for name in ("scale", "zero")),
            *(Stored(name, _ALONE, count=0, optional=True) for name in (*CHECKED, *FURTHER)),
        )

    def read(self, site: LayerSite, part: str, tensors: Mapping[str, WeightTensor]) -> Part:
        """Return the codes one by one, with what opens them where groups are not runs of inputs.

        Raises:
            CheckpointError: CORE-M160, the tensors are not those of the checkpoint's settings.
        """
        settings = self._config.settings(site, part)
        if settings is None:
            return super().read(site, part, tensors)
        size = (dict(site.parts)[part], site.in_features)
        _check(settings, size, tensors)
        form, groups = settings.form(size[1]), settings.groups(*size)
        packed = _packed(tensors["W_q"], settings.bits, groups[1])
        shape = (groups[0], 1) if settings.axis == 1 else (1, groups[1])
        scales, zeros = (_shared(tensors[name], shape) for name in ("scale", "zero"))
        codes = unpack(packed, settings.bits, groups[0])
        if form.codes != "int":
            return Part(form, codes.view(size), decode=partial(_opened, codes, scales, zeros, size))
        codes = codes.view(size)
        return Part(form, codes, scales.view(size[0], -1), zeros.view(size[0], -1))


def unpack(packed: Tensor, bits: int, rows: int) -> Tensor:
    """Return the codes `(rows, columns)` uint8 of `packed (rows / codes in an element, columns)`."""
    count = PACKED[bits]
    codes = torch.empty(count * len(packed), packed.shape[1], dtype=torch.uint8, device=packed.device)
    step = max(1, CHUNK // packed.shape[1])
    for place, part in enumerate(codes.chunk(count)):
        for some, out in zip(packed.split(step), part.split(step), strict=True):
            out.copy_((some >> bits * (count - 1 - place)) & (1 << bits) - 1)
    return codes[:rows]


def _opened(codes: Tensor, scales: Tensor, zeros: Tensor, size: tuple[int, int], dtype: torch.dtype) -> Tensor:
    return ((codes - zeros) * scales).to(dtype).view(size)


def _packed(tensor: WeightTensor, bits: int, columns: int) -> Tensor:
    """Return packed codes as integers: a file may show their bytes as floats (`view_as_float`)."""
    values, dtype = tensor.raw(), torch.int32 if bits == 3 else torch.uint8
    if values.dtype.is_floating_point:
        values = values.contiguous().view(dtype)
    if values.dtype != dtype or values.shape[1:] != (columns,):
        found = f"{values.dtype} in {tuple(values.shape[1:])} columns"
        raise contradicted(f"'{tensor.name}' holds {found}, not {dtype} in {columns}")
    return values


def _shared(tensor: WeightTensor, shape: tuple[int, int]) -> Tensor:
    values = tensor.dense(torch.float32)
    if values.numel() != shape[0] * shape[1]:
        raise contradicted(f"'{tensor.name}' has {values.numel()} numbers, not {shape[0] * shape[1]}")
    return values.reshape(shape)


def _check(settings: Settings, size: tuple[int, int], tensors: Mapping[str, WeightTensor]) -> None:
    """Hold what the file says of a weight against the settings."""
    due = {
        "nbits": [settings.bits],
        "group_size": [settings.size or size[settings.axis]],
        "axis": [settings.axis],
        "shape": list(size),
    }
    for name in CHECKED:
        found = tensors[name].raw().flatten().tolist() if name in tensors else due[name]
        if found != due[name]:
            raise contradicted(f"'{tensors[name].name}' is {found!r:.60}, not {due[name]}")
