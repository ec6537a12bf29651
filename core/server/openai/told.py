"""What participants tell clients of a sequence that ended, as members of its choice."""

from __future__ import annotations

import base64
import io
from typing import Any

import msgspec
import numpy as np

from core.frontend.results import CompletionOutput


def told(sequence: CompletionOutput) -> dict[str, Any]:
    """Return a member for each participant that told something, by its name.

    Values are plain data; an array is the base64 of a `.npy` file.
    """
    return {name: msgspec.to_builtins(value, enc_hook=_encoded) for name, value in sequence.parts.items()}


def _encoded(value: Any) -> str:
    if not isinstance(value, np.ndarray):
        raise NotImplementedError(f"a {type(value).__name__} is no plain data")
    file = io.BytesIO()
    np.save(file, value, allow_pickle=False)
    return base64.b64encode(file.getvalue()).decode()
