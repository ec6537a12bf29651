"""What a file says of the codes of a weight of four bits: the library's quantization state."""

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


def read_state(codes: str, tensors: Mapping[str, WeightTensor]) -> State:
    """Return the state that `tensors`, by suffix, hold. Raises `CheckpointError` CORE-M160."""
    said = _said(tensors[f"{STATE}{codes}"])
    table = tensors["weight.quant_map"].dense(torch.float32)
    if said.get("quant_type") != codes or len(table) != 16:
        raise contradicted(f"'{tensors['weight'].name}' has a state of {said.get('quant_type')!r:.60}, not of {codes}")
    scales = tensors["weight.absmax"]
    if "weight.nested_absmax" not in tensors:
        return State(_size(said, "blocksize", BLOCK), scales.dense(torch.float32), table)
    # Scales are codes of 8 bits themselves, in blocks of their own, and one number is added to all.
    block, offset = _size(said, "nested_blocksize", 256), float(said.get("nested_offset", 0.0))
    values = tensors["weight.nested_quant_map"].dense(torch.float32)[scales.raw().long()]
    own = tensors["weight.nested_absmax"].dense(torch.float32).repeat_interleave(block)[: len(values)]
    return State(_size(said, "blocksize", BLOCK), values * own + offset, table)


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
