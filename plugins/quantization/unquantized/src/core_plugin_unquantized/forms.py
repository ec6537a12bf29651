"""Forms of plain weights, and of those that they are rounded to. Torch-free."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.api import PLAIN, WeightForm
from core_plugin_unquantized.options import Int4Options

if TYPE_CHECKING:
    from core.api import CheckpointInfo

INT8 = WeightForm(codes="int", bits=8, activations="int8:token")
"""A scale for each output, and activations that are rounded for each token."""

SMALL = 32
"""Inputs of a group where a layer's inputs are no whole groups of the size that is wanted."""


def int4_form(inputs: int, options: Int4Options) -> WeightForm:
    """Return the form of a weight of so many inputs that is rounded to 4 bits."""
    size = options.group_size if inputs % options.group_size == 0 else SMALL
    return WeightForm(codes="int", bits=4, inputs=size, zeros=options.zero_points)


def forms_of(checkpoint: CheckpointInfo) -> dict[WeightForm, int]:
    """Return the plain form, with the number of matrices as far as the files' headers tell."""
    return {PLAIN: sum(len(shape) == 2 for shape, _ in checkpoint.tensors.values())}


def int8_forms(checkpoint: CheckpointInfo) -> dict[WeightForm, int]:
    """Return what `int8` rounds to, and the plain form of embeddings."""
    return {INT8: 0, PLAIN: 0}


def int4_forms(checkpoint: CheckpointInfo) -> dict[WeightForm, int]:
    """Return what `int4` rounds to where inputs are whole groups, and the plain form of embeddings."""
    options = Int4Options()
    return {int4_form(options.group_size, options): 0, PLAIN: 0}
