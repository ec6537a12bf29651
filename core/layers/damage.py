"""Damaged parts: scales that are no numbers, and errors that do not say which tensors they are about."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from core.api.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Collection

    from torch import Tensor

    from core.api.forms import Part
    from core.api.weights import WeightTensor

_ALL_ONES = 255
"""The exponent of `e8m0` that stands for no number."""

_NO_E4M3 = 127
"""The code of `e4m3`, without its sign, that stands for none."""


def check_scales(part: Part, tensors: Collection[WeightTensor], module: str) -> None:
    """Look through the scales of a part that was read: a layer that has a wrong one gives no numbers at all.

    Args:
        tensors: What the part was read from.
        module: Its path.

    Raises:
        CheckpointError: CORE-M161, a scale or a zero point is NaN or infinite.
    """
    fractions = part.zeros if part.zeros is not None and part.zeros.is_floating_point() else None
    fixed = (part.tensor_scale, part.input_scale, fractions)
    sound = _sound(part.scales, part.form.scale) and all(_sound(one, "float32") for one in fixed)
    if sound and part.decode is None:
        return
    found = [tensor.name for tensor in tensors if _is_damaged(tensor, part)]
    if sound and not found:  # codes that only the format opens: its scales are among the tensors
        return
    where = " and ".join(f"'{name}'" for name in found) or f"the tensors of '{module}'"
    raise CheckpointError(
        "CORE-M161",
        f"scales that are no numbers (NaN or infinite) are in {where}.",
        hint="The checkpoint is damaged: fetch it again.",
    )


def located(error: CheckpointError, tensors: Collection[WeightTensor], module: str) -> CheckpointError:
    """Return an error about a part that names its module or one of its tensors."""
    if module in error.message:
        return error
    names = ", ".join(f"'{tensor.name}'" for tensor in tensors) or f"'{module}'"
    return error.within(names)


def _sound(scales: Tensor | None, kind: str) -> bool:
    if scales is None:
        return True
    if kind == "e8m0":
        return not bool((scales.view(torch.uint8) == _ALL_ONES).any())
    if kind == "e4m3":
        return not bool(((scales.view(torch.uint8) & _NO_E4M3) == _NO_E4M3).any())
    return bool(scales.isfinite().all())


def _is_damaged(tensor: WeightTensor, part: Part) -> bool:
    """Whether a tensor beside the codes holds something that is no number."""
    if tensor.encoding != "plain":
        return False
    values = tensor.raw()
    if values.is_floating_point() and values.dtype.itemsize > 1:
        return not _sound(values, "float32")
    if values.numel() * 2 >= part.codes.numel():
        return False  # codes, two to a byte at most
    if values.dtype in (torch.uint8, torch.float8_e8m0fnu):
        return part.form.scale == "e8m0" and not _sound(values, "e8m0")
    return values.dtype == torch.float8_e4m3fn and not _sound(values, "e4m3")
