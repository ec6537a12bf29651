"""Devices and dtypes by name."""

from __future__ import annotations

import torch

from core.testing.conformance.outcome import Unavailable
from core.testing.conformance.subject import Subject


def device_of(subject: Subject) -> torch.device:
    """Return the device that a subject is run on. Raises `Unavailable` when this machine has none of its type."""
    name = subject.device
    if not name:
        raise Unavailable("it does not declare the CPU, and its samples have no ReferenceDevice to stand in")
    backend = getattr(torch, name, None)
    if name != "cpu" and (backend is None or not backend.is_available()):
        raise Unavailable(f"there is no {name} device here")
    return torch.device(name)


def dtype_of(name: str) -> torch.dtype:
    """Return torch's dtype of this name. Raises `Unavailable` when this torch has none."""
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise Unavailable(f"this torch has no dtype {name}")
    return found


def wait(device: torch.device) -> None:
    """Wait until the device has done everything asked of it."""
    if device.type != "cpu":
        getattr(torch, device.type).synchronize()


def largest_difference(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Return the greatest absolute difference; infinite for other shapes and for what is not finite."""
    if found.shape != expected.shape:
        return float("inf")
    difference = (found.detach().to("cpu", torch.float32) - expected.detach().to("cpu", torch.float32)).abs()
    return float(difference.nan_to_num(float("inf")).max()) if difference.numel() else 0.0
