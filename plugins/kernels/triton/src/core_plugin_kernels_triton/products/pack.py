"""Parts of a weight, written into the parameters of their run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional

from core_plugin_kernels_triton.products.encode import encoded
from core_plugin_kernels_triton.products.stored import FLOAT8

if TYPE_CHECKING:
    from core.api import Part, WeightForm
    from core_plugin_kernels_triton.products.stored import Stored

Sizes = dict[str, tuple[tuple[int, ...], torch.dtype]]
CHUNK = 1 << 22
"""Codes whose bits are spread at once."""


def sizes(stored: Stored, outputs: int, inputs: int) -> Sizes:
    """Return shape and dtype of what a weight is made of."""
    found: Sizes = {"codes": ((outputs, stored.row_bytes), torch.uint8)}
    if stored.grouped:
        shape = (-(-outputs // stored.shared), stored.groups)
        found["scales"] = (shape, stored.scale_dtype)
        if stored.zeros:
            found["zeros"] = (shape, torch.float32)
    if stored.by_row:
        found["row_scales"] = ((outputs,), torch.float32)
    if stored.ordered:
        found["group_of"] = ((inputs,), torch.int32)
    if stored.table:
        found["table"] = ((16,), torch.float32)
    return found


def pack(part: Part, form: WeightForm, stored: Stored, out: Mapping[str, Tensor], first: int) -> None:
    """Write a part whose outputs begin with `first`; one of another form is rounded to this one."""
    if not _same(part, form):
        part = encoded(part, form)
    rows = len(part.codes)
    _write_codes(part, stored, out["codes"].narrow(0, first, rows))
    whole = None if part.tensor_scale is None else part.tensor_scale.float()
    if stored.grouped:
        start, count = first // stored.shared, -(-rows // stored.shared)
        scales = out["scales"].narrow(0, start, count)
        scales.copy_(_raw(part, form))
        if whole is not None and not stored.by_row:
            scales.mul_(whole.to(scales.device))
        if part.zeros is not None:
            out["zeros"].narrow(0, start, count).copy_(part.zeros)
    if stored.by_row:
        scale = torch.ones(()) if stored.grouped or part.scales is None else _by_output(part, form)
        out["row_scales"].narrow(0, first, rows).copy_(scale if whole is None else scale * whole.to(scale.device))
    if stored.ordered and part.group_of is not None:
        out["group_of"].copy_(part.group_of)
    if stored.table:
        out["table"].copy_(torch.tensor(stored.table))


def _same(part: Part, form: WeightForm) -> bool:
    """Whether a part is stored as the form says, whatever becomes of activations."""
    alike = part.form.replace(activations=form.activations) == form
    return alike and (part.scales is not None or form.codes.startswith("gguf:"))


def _write_codes(part: Part, stored: Stored, out: Tensor) -> None:
    codes = part.codes
    if codes.dtype in FLOAT8.values() or stored.bits == 8:
        out.copy_(codes.view(torch.uint8))
        return
    step = max(1, CHUNK // max(1, codes.shape[1]))
    for start in range(0, len(codes), step):
        some = codes[start : start + step].to(device=out.device)
        some = some if some.dtype == torch.uint8 else (some.to(torch.int16) + (1 << (stored.bits - 1))).to(torch.uint8)
        out[start : start + step] = _bits(some, stored.bits, stored.row_bytes)


def _bits(codes: Tensor, bits: int, size: int) -> Tensor:
    """Return codes one after another, from the lowest bit of a row's first byte: `(rows, size)` uint8."""
    if bits == 4:
        padded = functional.pad(codes, (0, codes.shape[1] % 2))
        return padded[:, ::2] | (padded[:, 1::2] << 4)
    each = torch.arange(bits, dtype=torch.uint8, device=codes.device)
    spread = ((codes.unsqueeze(-1) >> each) & 1).flatten(1)
    spread = functional.pad(spread, (0, 8 * size - spread.shape[1])).unflatten(1, (size, 8))
    places = torch.arange(8, dtype=torch.uint8, device=codes.device)
    return (spread << places).sum(-1, dtype=torch.uint8)


def _raw(part: Part, form: WeightForm) -> Tensor:
    """Return scales of groups as they are stored; a part may have a single one for all."""
    assert part.scales is not None
    return part.scales if form.scale == "float32" else part.scales.view(torch.uint8)


def _by_output(part: Part, form: WeightForm) -> Tensor:
    """Return one scale for each output, `(outputs,)` float32."""
    assert part.scales is not None
    scales = part.scales
    if form.scale == "e8m0":
        wide = torch.exp2(scales.view(torch.uint8).float() - 127)
    else:
        wide = (scales.view(torch.float8_e4m3fn) if form.scale == "e4m3" else scales).float()
    each = form.outputs or len(part.codes)
    return wide.reshape(-1).repeat_interleave(each if wide.numel() > 1 else len(part.codes))[: len(part.codes)]
