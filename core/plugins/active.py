"""In a child process: find the plan's plugins again, check that they are the same, and load them. Nothing is chosen."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, TypeVar

from core.api.descriptors import Descriptor, KernelSpec
from core.api.errors import PluginError
from core.api.kinds import Chosen, Fit, Kind
from core.plugins.catalog import Catalogue
from core.plugins.contracts import check_contract, check_form
from core.plugins.drivers import (
    Candidate,
    guarded,
    guarded_items,
    load_descriptors,
    load_impl,
    own_arguments,
    raised,
)
from core.plugins.entry import Entry
from core.plugins.files import reopen_files
from core.plugins.handed import Handed
from core.plugins.hooks import Hooks
from core.plugins.kinds import KINDS, kind_of
from core.plugins.plan import PlannedPlugin, PluginPlan

T = TypeVar("T")


def enter(plan: PluginPlan, *, catalogue: Catalogue | None = None) -> ActivePlugins:
    """Verify a plan against what is installed here, load its descriptors and register its hooks.

    Raises:
        PluginError: CORE-P300 when a plugin is missing here or is another version (both are named), CORE-P302 when
            a plugin file changed; the load failure's own code when a descriptor or hook module cannot be loaded.
    """
    here = reopen_files(plan, Catalogue.scan() if catalogue is None else catalogue)
    drivers = [(planned, _load(planned, _same(planned, here))) for planned in plan.drivers]
    settled = {(planned.name, planned.dist): planned.options for planned in plan.hooks}
    hooks = Hooks(
        [_same(planned, here) for planned in plan.hooks],
        options=lambda entry, path: settled[entry.name, entry.dist],
    )
    for failure in hooks.failures:
        raise failure.error("the plugin plan")
    return ActivePlugins(plan, drivers, hooks)


class ActivePlugins:
    """The plan's plugins, loaded. Implementations are imported on first use and kept."""

    def __init__(self, plan: PluginPlan, drivers: list[tuple[PlannedPlugin, Candidate]], hooks: Hooks) -> None:
        self.plan = plan
        self.hooks = hooks
        self._drivers = drivers
        self._loaded: dict[tuple[Entry, str], Any] = {}
        self._chosen: dict[str, tuple[Chosen, ...]] = {}

    def has(self, group: str) -> bool:
        """Whether the plan has a driver of this group."""
        return any(planned.group == group for planned, _ in self._drivers)

    def spec(self, group: str) -> Descriptor:
        """Return the descriptor of a group's driver. Raises `PluginError` CORE-P301 if the plan has none."""
        return self._one(group)[1].descriptor

    def impl(self, group: str) -> Any:
        """Return the implementation of a group's driver, importing it once."""
        candidate = self._one(group)[1]
        return self._load(candidate, candidate.descriptor.impl)

    def planned(self, group: str) -> PlannedPlugin:
        """Return a group's driver as the plan names it. Raises `PluginError` CORE-P301 if the plan has none."""
        return self._one(group)[0]

    def specs(self, group: str) -> list[tuple[PlannedPlugin, Descriptor]]:
        """Return every driver of a group in the plan's order, importing no implementation; empty if there is none."""
        return [(planned, one.descriptor) for planned, one in self._drivers if planned.group == group]

    def impls(self, group: str) -> list[tuple[PlannedPlugin, Descriptor, Any]]:
        """Return every driver of a group in the plan's order, with its implementation; empty if there is none."""
        found = [(planned, one) for planned, one in self._drivers if planned.group == group]
        return [(planned, one.descriptor, self._load(one, one.descriptor.impl)) for planned, one in found]

    def bind(self, *groups: str) -> None:
        """Import the implementations of these groups now, so that what is wrong with one is told before it is needed.

        Raises:
            PluginError: CORE-P103, one cannot be imported; CORE-P160, one is not what its kind needs.
        """
        for group in groups:
            self.impls(group)

    def make(self, planned: PlannedPlugin, *arguments: Any, **named: Any) -> Any:
        """Return an object of a planned plugin's implementation.

        Raises:
            PluginError: CORE-P103, CORE-P160 as `bind`; CORE-P108, its constructor raised.
        """
        candidate = self._candidate(planned)
        return self.guard(
            planned, "its constructor", self._load(candidate, candidate.descriptor.impl), *arguments, **named
        )

    def guard(self, planned: PlannedPlugin, what: str, function: Callable[..., T], *arguments: Any, **named: Any) -> T:
        """Call a function of a planned plugin.

        Raises:
            PluginError: CORE-P108 with the plugin's name, it raised something without a code.
        """
        result: T = guarded(self._candidate(planned).entry, what, function, *arguments, **named)
        return result

    def guard_items(
        self, planned: PlannedPlugin, what: str, function: Callable[..., Iterator[T]], *arguments: Any
    ) -> Iterator[T]:
        """Yield what a function of a planned plugin gives one after the other. Raises `PluginError` as `guard`."""
        return guarded_items(self._candidate(planned).entry, what, function, *arguments)

    def new(self, planned: PlannedPlugin) -> Any:
        """Return an object of a kind that is made with nothing but its options. Raises as `make`."""
        return self.make(planned, *own_arguments(self._candidate(planned).descriptor, planned.options))

    def new_of(self, group: str) -> Any:
        """Return `new` of a group's driver. Raises as `make`, and CORE-P301 if the plan has none."""
        return self.new(self.planned(group))

    def chosen(self, kind: Kind | str) -> tuple[Chosen, ...]:
        """Return the plan's plugins of a kind that a plugin defines, each with an object that is made once.

        Raises:
            PluginError: CORE-P132, the kind is core's, which binds its plugins itself; or as `make`.
        """
        group = kind if isinstance(kind, str) else kind.group
        if group in KINDS:
            raise PluginError(
                "CORE-P132", f"plugins of the kind {KINDS[group].label} ({group}) are bound by core alone."
            )
        return self.kept(group, self.new)

    def driven(self, kind: Kind | str) -> tuple[Chosen, ...]:
        """Return the plan's plugins of a kind of core's that is made with its options alone, for who drives them.

        Raises:
            PluginError: As `make`.
        """
        group = kind if isinstance(kind, str) else kind.group
        return self.kept(group, lambda planned: self.make(planned, planned.options))

    def kept(self, group: str, make: Callable[[PlannedPlugin], Any]) -> tuple[Chosen, ...]:
        """Return the plan's plugins of a group, each with the object that `make` made of it at the first call."""
        if group not in self._chosen:
            self._chosen[group] = tuple(
                Chosen(
                    planned.name,
                    planned.owner,
                    one.descriptor,
                    make(planned),
                    _fit(planned),
                    partial(raised, one.entry),
                )
                for planned, one in self._drivers
                if planned.group == group
            )
        return self._chosen[group]

    def load(self, planned: PlannedPlugin, path: str) -> Any:
        """Import another object of a planned plugin (`worker_impl`, `sender`), once."""
        return self._load(self._candidate(planned), path)

    def fit_form(self, planned: PlannedPlugin, form: T) -> T:
        """Return what a planned kernel made of its options. Raises `PluginError` CORE-P160 if it does not fit."""
        candidate = self._candidate(planned)
        check_form(candidate.entry, "what it makes of its options", candidate.spec(KernelSpec), form)
        return form

    def options(self, group: str) -> dict[str, Any]:
        """Return the options of a group's driver."""
        return dict(self._one(group)[0].options)

    def events(self, event: str, details: Mapping[str, Any] | None = None) -> None:
        """Tell hook plugins of an engine event; what they raise is logged."""
        self.hooks.engine_event(event, details)

    def _candidate(self, planned: PlannedPlugin) -> Candidate:
        return next(one for mine, one in self._drivers if mine == planned)

    def _one(self, group: str) -> tuple[PlannedPlugin, Candidate]:
        for planned, candidate in self._drivers:
            if planned.group == group:
                return planned, candidate
        raise PluginError("CORE-P301", f"the plugin plan has no {kind_of(group).label} ({group}).")

    def _load(self, candidate: Candidate, path: str) -> Any:
        key = (candidate.entry, path)
        if key not in self._loaded:
            loaded = load_impl(path, candidate.entry)
            check_contract(candidate.entry, candidate.descriptor, path, loaded)
            self._loaded[key] = loaded
        return self._loaded[key]


def _fit(planned: PlannedPlugin) -> Fit:
    return Handed(f"{kind_of(planned.group).label} {planned.owner}").fit


def _same(planned: PlannedPlugin, here: Catalogue) -> Entry:
    """Return this process's entry for a planned plugin, which must be the very same."""
    entry = here.exact(planned.group, planned.name, planned.dist)
    found = f"{entry.dist} {entry.version}" if entry else "nothing"
    if entry is None or (entry.version, entry.value) != (planned.version, planned.value):
        raise PluginError(
            "CORE-P300",
            f"the plan says {kind_of(planned.group).label} '{planned.name}' of {planned.dist} {planned.version} "
            f"({planned.value}), but here is {found}{f' ({entry.value})' if entry else ''}.",
            hint="Install the same version in every environment that takes part, then start again.",
        )
    return entry


def _load(planned: PlannedPlugin, entry: Entry) -> Candidate:
    candidates, failures = load_descriptors([entry])
    for failure in failures:
        raise failure.error("the plugin plan")
    if candidates[0].descriptor.api != planned.api:
        raise PluginError(
            "CORE-P300",
            f"the plan says {planned.name} of {entry.owner} has API {planned.api}, here it has "
            f"{candidates[0].descriptor.api}.",
        )
    return candidates[0]
