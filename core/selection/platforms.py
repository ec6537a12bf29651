"""Choosing the platform, and which of its devices."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from core.api.descriptors import PlatformSpec
from core.api.errors import CoreError, PluginError
from core.api.verdict import ProbeResult, Verdict
from core.plugins.catalog import Catalogue
from core.plugins.drivers import Candidate, guarded, load_impl, typed
from core.plugins.entry import Entry
from core.plugins.kinds import PLATFORM
from core.plugins.known import normalise, platform_advice
from core.selection.report import SelectionReport
from core.selection.select import Selector, is_auto, names_in, reasons_of

_ASK = re.compile(r"(?P<name>[^:@]+):(?P<index>\d+)(?P<dist>@.+)?")
"""One device of a platform: `name:index`, `name:index@distribution`."""


@dataclass(frozen=True, slots=True)
class ChosenPlatform:
    """A platform and one of its devices.

    Attributes:
        probe: What it found of the device.
        index: Which of its devices, from 0.
    """

    candidate: Candidate
    probe: ProbeResult
    index: int

    @property
    def preferences(self) -> Mapping[str, int]:
        """Score adjustments of the descriptor, and of what was found."""
        declared, found = self.candidate.spec(PlatformSpec).preferences, self.probe.preferences
        return {key: declared.get(key, 0) + found.get(key, 0) for key in (*declared, *found)}


def choose_platform(
    selector: Selector, ask: str | None, prepare: Callable[[Candidate], object] | None = None
) -> ChosenPlatform:
    """Probe every platform and choose one.

    Args:
        ask: What the user wrote: a name, a name with an index, or several of which the first that can serve is taken.
        prepare: Called with each candidate before it is probed.

    Raises:
        CoreError: What was asked for cannot be had, or no platform finds a device.
    """
    names, indices = read_ask(ask)
    probes: dict[Entry, ProbeResult] = {}

    def check(candidate: Candidate) -> Verdict:
        if prepare is not None:
            prepare(candidate)
        probe = probes[candidate.entry] = probed(candidate)
        return _verdict(probe, indices.get(normalise(candidate.entry.name), 0))

    chosen = selector.choose(PLATFORM, names, check=check, none=partial(_no_platform, selector.catalogue))
    index = indices.get(normalise(chosen.entry.name), 0)
    found = probes[chosen.entry].of(index)
    selector.reports[-1].notes += [f"device {index}: {found.reason}"] if index else []
    return ChosenPlatform(chosen, found, index)


def read_ask(ask: str | None) -> tuple[str | None, dict[str, int]]:
    """Return what was asked for without indices, and the index of each platform that was named with one."""
    if ask is None or is_auto(ask):
        return ask, {}
    names: list[str] = []
    indices: dict[str, int] = {}
    for text in names_in(ask):
        match = _ASK.fullmatch(text)
        names.append(f"{match['name']}{match['dist'] or ''}" if match else text)
        if match:
            indices.setdefault(normalise(match["name"]), int(match["index"]))
    return ",".join(names), indices


def probed(candidate: Candidate) -> ProbeResult:
    """Ask a platform what it finds here. Raises `PluginError` if its probe does not answer."""
    path = candidate.spec(PlatformSpec).probe
    found = guarded(candidate.entry, path, load_impl(path, candidate.entry))
    return typed(candidate.entry, path, found, ProbeResult)


def _verdict(probe: ProbeResult, index: int) -> Verdict:
    """Return what speaks against one device of a platform."""
    if not probe.count:
        return Verdict.of(probe.reason or "not available")
    if index >= probe.count:
        return Verdict.of(_beyond(index, probe.count))
    device = probe.of(index)
    return Verdict.of(None if device.available else device.reason or "not available")


def _beyond(index: int, count: int) -> str:
    have = "one device, 0" if count == 1 else f"{count} devices, 0 to {count - 1}"
    return f"device {index} was asked for, and it finds {have}"


def _no_platform(catalogue: Catalogue, report: SelectionReport) -> CoreError:
    hint = platform_advice(catalogue.distributions()) or "See `core plugins list`."
    if not report.rows:
        return PluginError("CORE-P202", "no platform is installed, or every one is disabled.", hint=hint)
    return PluginError("CORE-P202", f"no platform matched. {reasons_of(report.rows)}.", hint=hint)
