"""Which packing a form of weights gets. What has no kernel is opened to the compute dtype."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from core_plugin_cpu.native import blocks
from core_plugin_cpu.native.packed import Format
from core_plugin_cpu.products.floats import FLOAT8, Float4, Float8
from core_plugin_cpu.products.groups import Groups
from core_plugin_cpu.products.packings import Blocks, Dense, Int8
from core_plugin_cpu.products.tables import Table, has_kernel

if TYPE_CHECKING:
    from core.api import WeightForm
    from core_plugin_cpu.products.packings import Packing

FOUR_BIT_FLOATS = ("e2m1/1x32:e8m0@", "e2m1/1x16:e4m3@")
"""How forms begin that are MXFP4 and NVFP4."""

BLOCK = 32
"""Inputs of a block: the least that integer products have a scale for."""


def opened(form: WeightForm, dtype: torch.dtype) -> Packing:
    """Return a packing whose product rounds nothing but what the form itself says."""
    if form.codes == "int" and form.bits == 8 and not (form.inputs or form.zeros or form.ordered):
        return Int8(form, 16 if form.activations == "as_is" else 8)
    return Dense(dtype)


def as_stored(form: WeightForm, inputs: int) -> Packing:
    """Return a packing in which codes stay as they are; its product may round activations, finer than bfloat16."""
    if form.codes.startswith("gguf:"):
        kind = form.codes.removeprefix("gguf:")
        layout = blocks.FORMATS.get(kind)
        return Dense(torch.bfloat16) if layout is None or inputs % layout.values else Blocks(Format[kind])
    if form.codes == "int" and form.bits == 4 and form.outputs == 1:
        size = form.inputs or inputs
        if size % BLOCK == 0 and inputs % size == 0:
            return Groups(form, inputs)
    if form.codes in FLOAT8 and not (form.zeros or form.ordered) and (form.inputs % BLOCK == 0):
        return Float8(form, inputs)
    if form.key.startswith(FOUR_BIT_FLOATS) and inputs % BLOCK == 0:
        return Float4(form)
    if has_kernel(form):
        return Table(form)
    return opened(form, torch.bfloat16)
