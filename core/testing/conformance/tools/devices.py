"""Devices and dtypes by name."""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import replace

import torch

from core.api.descriptors import PlatformSpec
from core.api.verdict import ProbeResult
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


def plainest(dtypes: Set[str]) -> str:
    """Return float32 where it is among the names, else the first of them."""
    return "float32" if "float32" in dtypes else min(dtypes)


def probe_of(subject: Subject) -> ProbeResult:
    """Return what the platform of the subject's device finds here."""
    for entry in subject.catalogue.entries("core.platforms"):
        platform = replace(subject, entry=entry)
        spec = platform.spec(PlatformSpec)
        if spec.device_type == subject.device:
            found: ProbeResult = platform.load(spec.probe)()
            return found
    return ProbeResult(available=True)


def need_features(subject: Subject, needs: Iterable[str]) -> None:
    """Raise `Unavailable` unless the device has every feature that a descriptor's `needs` names."""
    found = probe_of(subject)
    lacking = sorted(feature for feature in needs if not found.has(feature))
    if lacking:
        raise Unavailable(f"the {subject.device} device here lacks {', '.join(lacking)}, which it needs")


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
