"""The form of plain weights. Torch-free."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.api import PLAIN

if TYPE_CHECKING:
    from core.api import CheckpointInfo, WeightForm


def forms_of(checkpoint: CheckpointInfo) -> dict[WeightForm, int]:
    """Return the plain form, with the number of matrices as far as the files' headers tell."""
    return {PLAIN: sum(len(shape) == 2 for shape, _ in checkpoint.tensors.values())}
