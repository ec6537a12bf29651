"""A plugin, imported in this process with everything that it names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from core.api.descriptors import Descriptor, OptionSection, PlatformSpec
from core.api.errors import PluginError
from core.api.installed import PluginCheck, PluginFault
from core.config.sections import sections
from core.plugins.contracts import check_contract
from core.plugins.defined import read_kinds
from core.plugins.definition import faults_of
from core.plugins.drivers import Candidate, LoadFailure, load_descriptors, load_impl, objects_of
from core.plugins.entry import Entry
from core.plugins.hooks import Hooks
from core.plugins.kinds import HOOKS_GROUP, KINDS_GROUP
from core.plugins.options import settled_options
from core.selection.platforms import probed


def examined(entry: Entry) -> PluginCheck:
    """Return what importing a plugin shows; failures are collected."""
    if entry.group == HOOKS_GROUP:
        return _hooks(entry)
    if entry.group == KINDS_GROUP:
        return _definition(entry)
    return _driver(entry)


def _hooks(entry: Entry) -> PluginCheck:
    """Register the hook module and let it check this machine."""
    hooks = Hooks([entry], options=partial(settled_options, given={}))
    faults = tuple(_fault(failure) for failure in hooks.failures)
    return PluginCheck(faults=faults, told=tuple(finding for _, finding in hooks.doctor()))


def _definition(entry: Entry) -> PluginCheck:
    """Look at a kind that a plugin defines, and at what it names."""
    found = read_kinds([entry])
    faults = [_fault(failure) for failure in found.faults]
    for kind in found.kinds.values():
        faults += [PluginFault("CORE-P132", reason) for reason in faults_of(kind)]
    return PluginCheck(faults=tuple(faults))


def _driver(entry: Entry) -> PluginCheck:
    try:
        loaded = entry.load()
    except Exception:
        loaded = None
    candidates, failures = load_descriptors([entry])
    check = PluginCheck(loaded, faults=tuple(_fault(failure) for failure in failures))
    for candidate in candidates:
        faults = tuple(_misfits(entry, candidate.descriptor))
        check = replace(check, objects=tuple(objects_of(candidate.descriptor)), faults=faults)
        if isinstance(candidate.descriptor, OptionSection) and not faults:
            found = tuple(_fault(failure) for failure in sections().faults if failure.entry == entry)
            check = replace(check, faults=found)
        if isinstance(candidate.descriptor, PlatformSpec) and not faults:
            check = _probed(candidate, check)
    return check


def _misfits(entry: Entry, descriptor: Descriptor) -> Iterator[PluginFault]:
    for path in objects_of(descriptor):
        try:
            check_contract(entry, descriptor, path, load_impl(path, entry))
        except PluginError as error:
            yield PluginFault(error.code, _reason(error), error.hint)


def _probed(platform: Candidate, check: PluginCheck) -> PluginCheck:
    try:
        return replace(check, probe=probed(platform))
    except PluginError as error:
        return replace(check, faults=(PluginFault(error.code, _reason(error), error.hint),))


def _reason(error: PluginError) -> str:
    """Return the message without the plugin's name."""
    found = error.message.partition("cannot be used: ")[2] or error.message.partition("): ")[2]
    return (found or error.message).rstrip(".")


def _fault(failure: LoadFailure) -> PluginFault:
    return PluginFault(failure.code, failure.reason, failure.hint)
