"""Types of tensors: those that the gguf library knows, and newer ones. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType


class NewerKind(IntEnum):
    """Types with their numbers in files, as ggml has them, that not every release of the library knows."""

    NVFP4 = 40
    Q1_0 = 41
    Q2_0 = 42


Kind = GGMLQuantizationType | NewerKind
"""A type; equal to its number."""

_NEWER: Mapping[Kind, tuple[int, int]] = {
    NewerKind.NVFP4: (64, 36),
    NewerKind.Q1_0: (128, 18),
    NewerKind.Q2_0: (64, 18),
}
SIZES: Mapping[Kind, tuple[int, int]] = dict([*_NEWER.items(), *GGML_QUANT_SIZES.items()])
"""Values of a block, and its bytes."""


def kind_of(number: int) -> Kind:
    """Return the type of a number. Raises `ValueError`: there is none."""
    try:
        return GGMLQuantizationType(number)
    except ValueError:
        return NewerKind(number)


def kind_named(name: str) -> Kind:
    """Return the type of a name. Raises `KeyError`: there is none."""
    return GGMLQuantizationType[name] if name in GGMLQuantizationType.__members__ else NewerKind[name]
