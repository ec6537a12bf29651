"""Devices and dtypes by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from dataclasses import replace
from functools import partial

import numpy as np
import torch

from core.api.attention import BatchView
from core.api.descriptors import PlatformSpec
from core.api.platform import Platform
from core.api.verdict import ProbeResult
from core.plugins.drivers import describe
from core_testing.conformance.outcome import Failed, Unavailable
from core_testing.conformance.subject import Subject


def device_of(subject: Subject, needs: Iterable[str] = ()) -> torch.device:
    """Return the device that a subject is run on, opened by a platform for it; the CPU needs none to be there.

    Args:
        needs: Features that the device must have, as a descriptor's `needs` names them.

    Raises:
        Unavailable: This machine has no such device, or no installed platform that finds one.
    """
    name, wanted = subject.device, frozenset(needs)
    if not name:
        raise Unavailable("it does not declare the CPU, and its samples have no ReferenceDevice to stand in")
    if name == "cpu" and not wanted:
        return torch.device("cpu")
    platform, _ = _platform(subject, wanted)
    if platform is not None:
        return subject.shared.once(("opened", platform.entry), partial(_open, platform))
    backend = getattr(torch, name, None)
    if backend is None or not backend.is_available():
        raise Unavailable(f"there is no {name} device here")
    return torch.device(name)


def _open(platform: Subject) -> torch.device:
    """Open a platform as a worker does; it is closed after the run."""
    runtime: Platform = platform.impl()()
    state = torch.get_rng_state()
    device = runtime.open(threads=torch.get_num_threads(), seed=0, index=0)
    torch.set_rng_state(state)
    platform.shared.stack.callback(runtime.close)
    return device


def _platform(subject: Subject, needs: Set[str]) -> tuple[Subject | None, ProbeResult]:
    """Return the best installed platform of the subject's device that finds it with these features, and its finding.

    None is returned where no platform for this device is installed.

    Raises:
        Unavailable: There are platforms, but none that finds the device, or none with these features; says why of each.
    """
    every = list(_platforms(subject))
    for platform, found in every:
        if found.available and all(found.has(feature) for feature in needs):
            return platform, found
    if not every and not needs:
        return None, ProbeResult(available=True)
    why = "; ".join(f"platform '{one.entry.name}' {_against(found, needs)}" for one, found in every)
    asked = " with ".join([subject.device, *filter(None, [", ".join(sorted(needs))])])
    raise Unavailable(f"skipped: needs platform {asked}, and none that is installed is one ({why or 'there is none'})")


def _against(found: ProbeResult, needs: Set[str]) -> str:
    if not found.available:
        return f"finds no device: {found.reason or 'not available'}"
    return f"lacks {', '.join(sorted(feature for feature in needs if not found.has(feature)))}"


def _platforms(subject: Subject) -> Iterator[tuple[Subject, ProbeResult]]:
    """Yield the installed platforms of the subject's device, the best first, each with what it finds."""
    found = [replace(subject, entry=entry) for entry in subject.catalogue.entries("core.platforms")]
    fitting = [one for one in found if _device_type(one) == subject.device]
    for one in sorted(fitting, key=lambda one: -one.descriptor.band):
        yield one, subject.shared.once(("probed", one.entry), partial(_probe, one))


def _device_type(platform: Subject) -> str:
    try:
        return platform.spec(PlatformSpec).device_type
    except Failed:  # its own checks say why
        return ""


def _probe(platform: Subject) -> ProbeResult:
    try:
        found: ProbeResult = platform.load(platform.spec(PlatformSpec).probe)()
    except Exception as error:  # a broken platform is found by its own checks
        return ProbeResult(available=False, reason=f"it cannot be asked: {describe(error)}")
    return found


def with_twins(batch: BatchView, device: torch.device) -> BatchView:
    """Return a batch whose counts and lengths lie on the device as well."""
    given = (batch.query_starts, batch.seq_lens)
    starts, lengths = (torch.from_numpy(one.astype(np.int32)).to(device) for one in given)
    return replace(batch, twins=(starts, lengths))


def dtype_of(name: str) -> torch.dtype:
    """Return torch's dtype of this name. Raises `Unavailable` when this torch has none."""
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise Unavailable(f"this torch has no dtype {name}")
    return found


def plainest(dtypes: Set[str]) -> str:
    """Return float32 where it is among the names, else the first of them."""
    return "float32" if "float32" in dtypes else min(dtypes)


def probe_of(subject: Subject, needs: Iterable[str] = ()) -> ProbeResult:
    """Return what a platform of the subject's device finds here, one that has these features.

    Raises:
        Unavailable: There is none.
    """
    return _platform(subject, frozenset(needs))[1]


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
