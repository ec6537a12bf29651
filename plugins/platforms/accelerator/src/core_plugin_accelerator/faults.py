"""Faults of the device itself: after one nothing that runs on it can be trusted, and the engine has to start anew."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from core.api.errors import DEVICE_LOST, EngineError


@contextmanager
def device_faults() -> Iterator[None]:
    """Tell a fault of the device as CORE-E129. Memory that does not suffice is none."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except torch.AcceleratorError as error:
        first = str(error).partition("\n")[0].rstrip(". ")
        raise EngineError(DEVICE_LOST, f"the device failed: {first}.") from error
