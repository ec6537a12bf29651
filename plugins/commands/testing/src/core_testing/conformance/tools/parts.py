"""Random parts of weights in the forms that core itself opens."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from core.api.forms import PLAIN, Part, WeightForm
from core.ops.products import opened


def random_part(form: WeightForm, outputs: int, inputs: int, rng: torch.Generator, *, bias: bool = False) -> Part:
    """Return a part as core gives it to a product: with `decode`, and with its bias if it has one.

    Raises:
        ValueError: Codes other than plain numbers, integers and float8.
    """
    part = _coded(form, outputs, inputs, rng)
    part.decode = partial(opened, replace(part))
    part.bias = torch.randn(outputs, generator=rng) if bias else None
    return part


def plain_part(values: Tensor) -> Part:
    """Return plain numbers, as an update of the weights may bring them for layers of any form."""
    part = Part(PLAIN, values)
    part.decode = partial(opened, replace(part))
    return part


def _coded(form: WeightForm, outputs: int, inputs: int, rng: torch.Generator) -> Part:
    if form.codes == "plain":
        return Part(form, torch.randn(outputs, inputs, generator=rng))
    shared = (-(-outputs // (form.outputs or outputs)), -(-inputs // (form.inputs or inputs)))
    scales = torch.rand(shared, generator=rng) + 0.5
    if form.codes.startswith("float8"):
        return Part(form, torch.randn(outputs, inputs, generator=rng).to(getattr(torch, form.codes)), scales)
    if form.codes != "int":
        raise ValueError(f"no random codes of the kind {form.codes}")
    levels = 1 << form.bits
    codes = torch.randint(0, levels, (outputs, inputs), generator=rng)
    group_of = torch.randperm(inputs, generator=rng) // (form.inputs or inputs) if form.ordered else None
    if not form.zeros:
        return Part(form, (codes - levels // 2).to(torch.int8), scales, group_of=group_of)
    zeros = torch.randint(levels, 3 * levels, shared, generator=rng) / 4  # fractions, too
    return Part(form, codes.to(torch.uint8), scales, zeros, group_of)
