"""The forms of a file's matrices, from its header. Torch-free."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from core.api import PLAIN, WeightForm

if TYPE_CHECKING:
    from core.api import CheckpointInfo


def forms_of(checkpoint: CheckpointInfo) -> dict[WeightForm, int]:
    """Return every form that a file's matrices have, with the number of them."""
    stored = [kind for shape, kind in checkpoint.tensors.values() if len(shape) == 2]
    return dict(Counter(WeightForm(codes=kind) if kind.startswith("gguf:") else PLAIN for kind in stored))
