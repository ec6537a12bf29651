"""The library's quantization state: a file's description of the codes of a weight of four bits."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from core_plugin_bitsandbytes.config import BLOCK, contradicted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from core.api import WeightTensor

STATE = "weight.quant_state.bitsandbytes__"
"""Begins the suffix of the state; the codes follow."""

MAP = "weight.quant_map"

_NF4 = (
    *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635),
    *(-0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725),
    *(0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
)
_FP4 = (0.0, 0.0052083333, 0.6666666667, 1.0, 0.3333333333, 0.5, 0.1666666667, 0.25)

TABLES = {"nf4": torch.tensor(_NF4), "fp4": torch.tensor((*_FP4, *(-value for value in _FP4)))}
"""Values of the codes 0 to 15, as the library has them."""


@dataclass(frozen=True, slots=True)
class State:
    """The state of a weight.

    Attributes:
        block: Values that share a scale, one after another through the rows.
        scales: `(blocks,)` float32.
        table: `(16,)` float32, the values of the codes.
    """

    block: int
    scales: Tensor
    table: Tensor


def read_state(codes: str, tensors: Mapping[str, WeightTensor], size: int) -> State:
    """Return the state that `tensors`, by suffix, hold of a weight of `size` values.

    Raises:
        CheckpointError: CORE-M160, it is not that of such a weight, or its scales are no numbers.
    """
    said = _said(tensors[f"{STATE}{codes}"])
    table = _numbers(tensors[MAP])
    if said.get("quant_type") != codes or len(table) != 16:
        raise contradicted(f"'{tensors['weight'].name}' has a state of {said.get('quant_type')!r:.60}, not of {codes}")
    scales, wide = tensors["weight.absmax"], _size(said, "blocksize", BLOCK)
    _require_count(scales, -(-size // wide))
    if "weight.nested_absmax" not in tensors:
        return State(wide, _numbers(scales), table)
    # Scales are codes of 8 bits themselves, in blocks of their own, and one number is added to all.
    block, offset = _size(said, "nested_blocksize", 256), float(said.get("nested_offset", 0.0))
    _require_count(tensors["weight.nested_absmax"], -(-scales.shape[0] // block))
    values = _numbers(tensors["weight.nested_quant_map"])[scales.raw().long()]
    own = _numbers(tensors["weight.nested_absmax"]).repeat_interleave(block)[: len(values)]
    return State(wide, values * own + offset, table)


def _require_count(scales: WeightTensor, count: int) -> None:
    if tuple(scales.shape) != (count,):
        raise contradicted(f"'{scales.name}' has shape {tuple(scales.shape)}, not {(count,)}")


def _numbers(tensor: WeightTensor) -> Tensor:
    values = tensor.dense(torch.float32)
    if not bool(values.isfinite().all()):
        raise contradicted(f"'{tensor.name}' holds what is no number (NaN or infinity)")
    return values


def _said(tensor: WeightTensor) -> dict[str, Any]:
    try:
        said = json.loads(bytes(tensor.raw().tolist()))
    except ValueError as error:
        raise contradicted(f"'{tensor.name}' is no JSON ({error})") from error
    return said if isinstance(said, dict) else {}


def _size(said: Mapping[str, Any], key: str, usual: int) -> int:
    size = said.get(key, usual)
    if type(size) is not int or size < 1:
        raise contradicted(f"a state has {key} {size!r:.60}")
    return size
