"""The forms of a file's matrices, from its header. Torch-free."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from core.api import PLAIN, WeightForm
from core_plugin_gguf.formats import FLOATS

if TYPE_CHECKING:
    from core.api import CheckpointInfo

_FLOATS = frozenset(kind.name for kind in FLOATS)


def form_of(kind: str) -> WeightForm:
    """Return the form of a tensor type: its blocks, or the plain form of arrays of numbers."""
    return PLAIN if kind in _FLOATS else WeightForm(codes=f"gguf:{kind}")


def forms_of(checkpoint: CheckpointInfo) -> dict[WeightForm, int]:
    """Return every form that a file's matrices have, with the number of them."""
    return dict(Counter(map(form_of, checkpoint.quantization_config.get("tensors", {}).values())))
