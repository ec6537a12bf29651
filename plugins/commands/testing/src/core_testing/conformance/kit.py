"""Choosing plugins and checks, running them, and the report; `pytest --core-plugin-conformance` is built on it."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from core.api.descriptors import (
    AttentionSpec,
    Descriptor,
    KernelSpec,
    KVConnectorSpec,
    LogitsSpec,
    ModelSpec,
    PlatformSpec,
    QuantSpec,
)
from core.api.errors import ConfigError
from core.api.verdict import ProbeResult
from core.plugins.catalog import Catalogue
from core.plugins.drivers import describe, unfound
from core.plugins.entry import matches
from core.plugins.kinds import every_kind
from core.suggest import nearest
from core_testing.conformance.device_samples import ReferenceDevice
from core_testing.conformance.outcome import Check, Failed, Level, NotApplicable, Outcome, Status, Unavailable
from core_testing.conformance.report import Report
from core_testing.conformance.subject import Shared, Subject
from core_testing.conformance.table import checks_for


@dataclass(frozen=True, slots=True)
class Job:
    """One check of one plugin on one device."""

    subject: Subject
    check: Check
    level: Level
    name: str

    def run(self) -> Outcome:
        """Run the check; whatever it raises becomes an outcome."""
        begin = time.perf_counter()
        status, message = _attempt(lambda: self.check.function(self.subject))
        return Outcome(self.name, self.level, status, message, time.perf_counter() - begin, self.check.area)


def run(
    selector: str = "",
    *,
    level: Level | None = None,
    checks: Collection[str] = (),
    catalogue: Catalogue | None = None,
) -> Report:
    """Run the kit and return what came of it.

    Args:
        selector: A distribution, a name, `kind:name` or `name@distribution`, or empty for every plugin.
        level: Highest level to check; None is L2.
        checks: Names of checks, to run only these.
        catalogue: The installed plugins; scanned if not given.

    Raises:
        ConfigError: CORE-T101 when nothing installed answers to `selector`.
    """
    report, shared = Report(), Shared()
    try:
        for subject in subjects(selector, shared, catalogue):
            mine = report.of(subject.entry)
            for job in jobs(subject, Level.L2 if level is None else level):
                if not checks or job.check.name in checks:
                    mine.outcomes.append(job.run())
    finally:
        shared.close()
    return report


def subjects(selector: str, shared: Shared, catalogue: Catalogue | None = None) -> list[Subject]:
    """Return the plugins that `selector` names, as in `run`."""
    installed = Catalogue.scan() if catalogue is None else catalogue
    every = installed.usable()
    found = [entry for entry in every if not selector or matches(selector, entry)]
    if not found:
        names = sorted({entry.name for entry in every} | {entry.dist for entry in every})
        raise ConfigError(
            "CORE-T101",
            f"no installed plugin is called '{selector}', nor a distribution with plugins.",
            hint=nearest(selector.rpartition(":")[2], names) or "See `core plugins list`.",
        )
    order = list(every_kind())
    found.sort(key=lambda one: (order.index(one.group) if one.group in order else len(order), one))
    shared.entries = found
    return [Subject(entry, installed, shared) for entry in found]


def jobs(subject: Subject, level: Level) -> Iterator[Job]:
    """Yield what is to be run up to a level: on the CPU, then again on each accelerator that the plugin declares."""
    checks = checks_for(subject.entry.group)
    devices = _devices(subject)
    at_hand = subject.on(_l1_device(subject, devices))
    here: set[str] = set() if level < Level.L2 or _libraries(subject) else _here(subject).keys() - {"cpu"}
    accelerators = sorted(devices & here)
    for check in checks:
        # What has no CPU form runs on its own device, below.
        elsewhere = check.on_device and accelerators and not at_hand.device
        if check.level < Level.L2 and check.level <= level and not elsewhere:
            yield Job(at_hand if check.on_device else subject, check, check.level, check.name)
    if level < Level.L2:
        return
    for device in accelerators:
        on_device = [check for check in checks if check.on_device]
        yield from (Job(subject.on(device), check, Level.L2, f"{check.name}@{device}") for check in on_device)
    if devices and not accelerators:
        yield Job(subject, Check(a_declared_accelerator_is_here, Level.L2), Level.L2, "a_declared_accelerator_is_here")
    at_hand = subject.on("cpu" if not devices or "cpu" in devices else "")  # a stand-in's speed says nothing
    for check in checks:
        if Level.L2 <= check.level <= level:
            if at_hand.device or not accelerators:
                yield Job(at_hand, check, check.level, check.name)
            yield from (Job(subject.on(one), check, check.level, f"{check.name}@{one}") for one in accelerators)


def a_declared_accelerator_is_here(subject: Subject) -> None:
    """This machine has an accelerator that the plugin declares, a platform that finds it, and its libraries."""
    if absent := _libraries(subject):
        raise Unavailable(f"it needs the module {', '.join(absent)}, which is not installed")
    named = _declared(subject.descriptor) - {"cpu"}
    if not named:
        raise NotApplicable("it declares no device besides the CPU")
    wanted = "an accelerator" if "*" in named else f"a device of type {', '.join(sorted(named))}"
    why = "; ".join(text for device, text in _absent(subject.catalogue) if device in named or "*" in named)
    raise Unavailable(f"no installed platform finds {wanted} here{f' ({why})' if why else ''}")


def _declared(descriptor: Descriptor) -> frozenset[str]:
    """Return the device types that a descriptor names; `*` is any, nothing a kind that is not about devices."""
    if isinstance(descriptor, PlatformSpec):
        return frozenset({descriptor.device_type})
    if isinstance(descriptor, AttentionSpec | QuantSpec | KVConnectorSpec | KernelSpec):
        return descriptor.devices
    return frozenset({"*"}) if isinstance(descriptor, ModelSpec | LogitsSpec) else frozenset()


def _libraries(subject: Subject) -> list[str]:
    """Return the modules that a plugin is for, and that are not installed."""
    try:
        return [] if subject.bare else unfound(subject.descriptor.imports)
    except Failed:  # the checks of its manifest say why
        return []


def _devices(subject: Subject) -> frozenset[str]:
    """Return the device types on which a plugin must be correct."""
    try:
        named = frozenset() if subject.bare else _declared(subject.descriptor)
    except Failed:  # the checks of its manifest say why
        return frozenset()
    if "*" not in named:
        return named
    return (named - {"*"}) | _here(subject).keys() | {"cpu"}


def _here(subject: Subject) -> dict[str, str]:
    """Return the accelerators of this machine: device type -> what the platform's probe says."""
    return subject.shared.once(("accelerators",), lambda: _accelerators_here(subject.catalogue))


def _accelerators_here(catalogue: Catalogue) -> dict[str, str]:
    return {device: found.reason for _, device, found in _probes(catalogue) if found.available}


def _absent(catalogue: Catalogue) -> list[tuple[str, str]]:
    """Return device type and reason of every accelerator that an installed platform looks for in vain."""
    return [
        (device, f"platform '{name}': {found.reason or 'not available'}")
        for name, device, found in _probes(catalogue)
        if not found.available
    ]


def _probes(catalogue: Catalogue) -> Iterator[tuple[str, str, ProbeResult]]:
    """Yield name, device type and finding of every platform for another device than the CPU."""
    for entry in catalogue.entries("core.platforms"):
        platform = Subject(entry, catalogue, Shared())
        try:
            spec = platform.spec(PlatformSpec)
            if spec.device_type != "cpu":
                yield entry.name, spec.device_type, platform.load(spec.probe)()
        except Exception as error:  # a broken platform is found by its own checks
            yield entry.name, "", ProbeResult(available=False, reason=f"it cannot be asked: {describe(error)}")


def _l1_device(subject: Subject, devices: frozenset[str]) -> str:
    """Return the device for L1: the CPU, what the plugin says stands in for it, or none."""
    if not devices or "cpu" in devices:
        return "cpu"
    try:
        return next((sample.device for sample in subject.samples(ReferenceDevice)), "")
    except Failed:  # a broken module of samples is found by the checks that need one
        return ""


def _attempt(function: Callable[[], None]) -> tuple[Status, str]:
    try:
        function()
    except NotApplicable as reason:
        return "skipped", str(reason)
    except Unavailable as reason:
        return "unavailable", str(reason)
    except Failed as reason:
        return "failed", str(reason)
    except (Exception, SystemExit) as error:
        return "failed", describe(error)
    return "passed", ""
