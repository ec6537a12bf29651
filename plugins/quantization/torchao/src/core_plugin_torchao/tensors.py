"""The tensors of torchao's classes, by their names: what a file has of a weight, and how its codes are taken out."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import torch
from core_plugin_unquantized.packing import codes_of_bytes, codes_of_words

from core.api import Part, Stored
from core_plugin_torchao.config import CODES, contradicted
from core_plugin_torchao.layouts import TILE
from core_plugin_torchao.runs import mx_read, mx_stored, nvfp4_read, nvfp4_stored

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from core.api import WeightForm, WeightTensor

SCALE, ZERO, BOTH = "_weight_scale", "_weight_zero_point", "_weight_scale_and_zero"
MIDDLE = 8
"""The code, of 16, that stands for the zero point."""

_DEEP = 128
"""Inputs that a tile of words holds, for 8 outputs."""

_ROWS = 64
"""Tiles of outputs that are taken apart at once."""


class Reading(NamedTuple):
    """Attributes:
    stored: The tensors of a weight of a form.
    read: The part `(outputs, inputs)` that they hold.
    """

    stored: Callable[[WeightForm], Sequence[Stored]]
    read: Callable[[WeightForm, tuple[int, int], Mapping[str, WeightTensor]], Part]


def _int4_stored(form: WeightForm) -> Sequence[Stored]:
    """`qdata (out, in / 2)`, the first of two codes in the low bits; `scale` and `zero_point (groups, out)`."""
    shared = (Stored(name, (1, 0), per=(1, form.inputs)) for name in (SCALE, ZERO))
    return Stored(CODES, per=(1, 2)), *shared


def _int4_read(form: WeightForm, size: tuple[int, int], tensors: Mapping[str, WeightTensor]) -> Part:
    """Codes are signed, and what is called a zero point is the value of code 0."""
    codes = codes_of_bytes(_raw(tensors[CODES], torch.int8, torch.uint8).view(torch.uint8))
    scales, values = (tensors[name].dense(torch.float32).t().contiguous() for name in (SCALE, ZERO))
    return Part(form, codes.bitwise_xor_(MIDDLE), scales, _points(scales, values, tensors[SCALE].name))


def _tiles_stored(form: WeightForm) -> Sequence[Stored]:
    """`qdata (out / 8, in / 128, 32, 4)` int32 and `scale_and_zero (groups, out, 2)`, of whole tiles."""
    per, groups = (8, TILE), TILE // form.inputs
    return (
        Stored(CODES, per=per, unit=(1, TILE // _DEEP), count=0),
        Stored(BOTH, (1, 0), per=per, unit=(8, groups), count=2),
    )


def _tiles_read(form: WeightForm, size: tuple[int, int], tensors: Mapping[str, WeightTensor]) -> Part:
    words, both = _raw(tensors[CODES], torch.int32), tensors[BOTH].dense(torch.float32)
    if words.shape[2:] != (32, 4):
        raise contradicted(f"'{tensors[CODES].name}' has tiles of {tuple(words.shape[2:])}, not (32, 4)")
    codes = torch.empty(size, dtype=torch.uint8, device=words.device)
    for some, out in zip(words.split(_ROWS), codes.split(_ROWS * 8), strict=True):
        out.copy_(_of_tiles(some)[: len(out), : size[1]])
    scales, values = both.permute(2, 1, 0)[:, : size[0], : -(-size[1] // form.inputs)].contiguous()
    return Part(form, codes, scales, _points(scales, values, tensors[BOTH].name))


def _of_tiles(words: Tensor) -> Tensor:
    """Return the codes of tiles for tensor cores, `(outputs, inputs)`.

    Of 32 words in a row for 8 outputs, 4 are for each of these; each of these 4 has every fourth pair of inputs. A word
    has two inputs of 4 runs of 8 inputs: first inputs of the pairs are in its low half.
    """
    tiles, deep = words.shape[:2]
    codes = codes_of_words(words.reshape(-1, 4), 4)
    every = codes.view(tiles, deep, 8, 4, 4, 2, 4)  # tile, 128 inputs, output, pair, 32 inputs, first or second, run
    return every.permute(0, 2, 1, 4, 6, 3, 5).reshape(tiles * 8, deep * 128)


def _points(scales: Tensor, values: Tensor, name: str) -> Tensor:
    """Return the zero points, with fractions, of groups whose middle code has the value `values`."""
    if bool(((scales == 0) & (values != 0)).any()):
        raise contradicted(f"'{name}' has scales of 0")
    return MIDDLE - values / torch.where(scales == 0, 1.0, scales)


def _shared_stored(form: WeightForm) -> Sequence[Stored]:
    """`qdata (out, in)` and `scale`, one for each block, each output, or in all.

    Symmetric integers may have zero points of 0.
    """
    zeros = (_shared(ZERO, form, optional=True),) if form.codes == "int" else ()
    return Stored(CODES), _shared(SCALE, form), *zeros


def _shared(name: str, form: WeightForm, *, optional: bool = False) -> Stored:
    axes = (0 if form.outputs else None, 1 if form.inputs else None)
    return Stored(name, axes, per=(max(1, form.outputs), max(1, form.inputs)), optional=optional)


def _shared_read(form: WeightForm, size: tuple[int, int], tensors: Mapping[str, WeightTensor]) -> Part:
    dtype = torch.int8 if form.codes == "int" else getattr(torch, form.codes)
    if ZERO in tensors:
        _symmetric(tensors[ZERO])
    return Part(form, _raw(tensors[CODES], dtype), _matrix(tensors[SCALE]))


def _intx_stored(form: WeightForm) -> Sequence[Stored]:
    """As of 8 bits, with zero points: codes have bytes of their own."""
    return Stored(CODES), _shared(SCALE, form), _shared(ZERO, form)


def _intx_read(form: WeightForm, size: tuple[int, int], tensors: Mapping[str, WeightTensor]) -> Part:
    codes, scales, zeros = _raw(tensors[CODES], torch.int8), _matrix(tensors[SCALE]), _matrix(tensors[ZERO])
    if form.zeros:
        middle = 1 << form.bits - 1
        return Part(form, torch.add(codes.view(torch.uint8), middle), scales, zeros + middle)
    _symmetric(tensors[ZERO])
    return Part(form, codes, scales)


def _symmetric(zeros: WeightTensor) -> None:
    if bool(zeros.raw().any()):
        raise contradicted(f"'{zeros.name}' has zero points, and weights are symmetric")


def _matrix(tensor: WeightTensor) -> Tensor:
    values = tensor.dense(torch.float32)
    return values if values.dim() == 2 else values.reshape(-1, 1)


def _raw(tensor: WeightTensor, *dtypes: torch.dtype) -> Tensor:
    values = tensor.raw()
    if values.dtype not in dtypes:
        raise contradicted(f"'{tensor.name}' holds {values.dtype}, not {' or '.join(map(str, dtypes))}")
    return values


READINGS = {
    "Int4Tensor": Reading(_int4_stored, _int4_read),
    "Int4TilePackedTo4dTensor": Reading(_tiles_stored, _tiles_read),
    "Int8Tensor": Reading(_shared_stored, _shared_read),
    "Float8Tensor": Reading(_shared_stored, _shared_read),
    "IntxUnpackedToInt8Tensor": Reading(_intx_stored, _intx_read),
    "MXTensor": Reading(mx_stored, mx_read),
    "NVFP4Tensor": Reading(nvfp4_stored, nvfp4_read),
}
