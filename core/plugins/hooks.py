"""Hooks: zero or more plugins acting at a defined moment. The only file that builds pluggy's manager.

A hook module that cannot be registered is recorded and left out. Every exception in a hook is attributed to the
plugin and distribution whose code raised it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any

import pluggy

from core.api import hooks as specifications
from core.api.deprecation import Renamed
from core.api.errors import PluginError
from core.api.patches import ConfigPatch, Finding, Problem, Waiver
from core.api.requests import Reject, RequestDraft, RequestPatch
from core.plugins.drivers import LoadFailure, describe, guarded, raised, typed
from core.plugins.entry import Entry
from core.signals import SignalExit

log = logging.getLogger(__name__)


OPTIONS_MODEL = "__core_options__"
"""Attribute of a hook module: dotted path of the pydantic model of its options."""

OptionsOf = Callable[[Entry, str | None], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Proposal:
    """A configuration patch and the plugin that wants it."""

    entry: Entry
    patch: ConfigPatch


class _Manager(pluggy.PluginManager):
    """Knows hooks by the names they used to have."""

    def __init__(self, renamed: Mapping[str, Renamed]) -> None:
        super().__init__("core")
        self._renamed = renamed

    def parse_hookimpl_opts(self, plugin: Any, name: str) -> Any:
        """Return how a function implements a hook; under an old name it implements the new one, unless both do."""
        found: Any = super().parse_hookimpl_opts(plugin, name)
        note = self._renamed.get(found["specname"] or name) if found else None
        if note is None:
            return found
        note.warn_of(f"hook {name}", getattr(plugin, name), partial(pluggy.PluginValidationError, plugin))
        return None if hasattr(plugin, note.new) else {**found, "specname": note.new}


class Hooks:
    """Typed calls of the hooks that `entries` implement, registered in the order given.

    Args:
        renamed: Old names of hooks.
        options: Returns the options of a plugin, given the path of its options model if it names one.
    """

    def __init__(
        self,
        entries: Iterable[Entry] = (),
        *,
        options: OptionsOf = lambda entry, path: {},
        renamed: Mapping[str, Renamed] = specifications.RENAMED_HOOKS,
    ) -> None:
        self.entries: list[Entry] = []
        self.failures: list[LoadFailure] = []
        self._plugins: dict[str, tuple[Entry, object]] = {}
        self._options: dict[str, Mapping[str, Any]] = {}
        self._options_of = options
        self._callers: dict[tuple[str, str], Callable[..., Any]] = {}
        self._manager = _Manager(renamed)
        self._manager.add_hookspecs(specifications)
        for entry in entries:
            self._register(entry)

    def configure(self, config: Mapping[str, Any], facts: Mapping[str, Any]) -> list[Proposal]:
        """Ask every plugin for configuration patches."""
        answers = self._ask("core_configure", config=config, facts=facts)
        return [
            Proposal(entry, typed(entry, "hook core_configure", patch, ConfigPatch))
            for entry, patches in answers
            for patch in _many(entry, "core_configure", patches)
        ]

    def validate(self, config: Mapping[str, Any]) -> list[tuple[Entry, Problem]]:
        """Ask every plugin what is wrong with the final configuration."""
        return [
            (entry, typed(entry, "hook core_validate", problem, Problem))
            for entry, problems in self._ask("core_validate", config=config)
            for problem in _many(entry, "core_validate", problems)
        ]

    def select(self, group: str, candidates: Sequence[str], request: Mapping[str, Any]) -> tuple[str, Entry] | None:
        """Return the first plugin's choice among `candidates` and who made it, or None if no plugin cares."""
        answers = self._ask("core_select", group=group, candidates=tuple(candidates), request=request)
        for entry, choice in answers:
            if choice not in candidates:
                raise PluginError(
                    "CORE-P108",
                    f"hook core_select of '{entry.name}' ({entry.owner}) chose {choice!r} for {group}; "
                    f"it may choose among {', '.join(candidates)}.",
                )
            return choice, entry
        return None

    def engine_event(self, event: str, details: Mapping[str, Any] | None = None) -> None:
        """Tell every plugin of an event. What a plugin raises is logged: observers cannot stop the engine."""
        for name in self._implementers("core_engine_event"):
            try:
                self._call("core_engine_event", name, {"event": event, "details": details or {}})
            except PluginError as error:
                log.error("%s", error)

    def listing(self) -> list[dict[str, Any]]:
        """Return every hook with its parameters and implementers as plain data, wrappers first, then in call order."""
        rows = []
        for name in sorted(vars(self._manager.hook)):
            caller = getattr(self._manager.hook, name)
            if caller.spec is None:
                continue
            implementers = caller.get_hookimpls()[::-1]
            wrappers = [impl for impl in implementers if impl.wrapper or impl.hookwrapper]
            ordered = [*wrappers, *(impl for impl in implementers if impl not in wrappers)]
            rows.append(
                {
                    "hook": name,
                    "parameters": list(caller.spec.argnames),
                    "result": "first answer" if caller.spec.opts.get("firstresult") else "every answer",
                    "summary": (caller.spec.function.__doc__ or "").strip().partition("\n")[0],
                    "implementers": [self._implementer(impl) for impl in ordered],
                }
            )
        return rows

    def _implementer(self, impl: pluggy.HookImpl) -> dict[str, Any]:
        entry = self._plugins[impl.plugin_name][0]
        wraps = impl.wrapper or impl.hookwrapper
        return {"name": entry.name, "distribution": entry.dist, "version": entry.version, "wrapper": wraps}

    def waive(self, problem: Problem) -> tuple[Waiver, Entry] | None:
        """Return the first plugin's waiver of an error and whose it is, or None if nobody takes it on."""
        for entry, waiver in self._ask("core_waive", problem=problem):
            return typed(entry, "hook core_waive", waiver, Waiver), entry
        return None

    def layer(self, site: object, layer: Any) -> Any:
        """Return the layer of a place in the model, after every plugin that wraps or replaces it."""
        for name in self._implementers("core_layer"):
            answer = self._call("core_layer", name, {"site": site, "layer": layer})
            layer = layer if answer is None else answer
        return layer

    def model_loaded(self, model: object, info: Mapping[str, Any]) -> None:
        """Tell every plugin that a model's weights are in place. Raises `PluginError` for what a plugin raises."""
        for name in self._implementers("core_model_loaded"):
            self._call("core_model_loaded", name, {"model": model, "info": info})

    def request(self, draft: RequestDraft, patch: Callable[[RequestDraft, RequestPatch], RequestDraft]) -> Any:
        """Return a request after every plugin's changes, or the first `Reject`.

        Args:
            patch: Applies one plugin's changes; what it raises is attributed to the plugin unless it has a code.
        """
        for name in self._implementers("core_request"):
            entry, answer = self._plugins[name][0], self._call("core_request", name, {"request": draft})
            if isinstance(answer, Reject):
                return answer
            if answer is not None:
                change = typed(entry, "hook core_request", answer, RequestPatch)
                draft = guarded(entry, "hook core_request: its patch", patch, draft, change)
        return draft

    def doctor(self) -> list[tuple[Entry, Finding]]:
        """Ask every plugin what it finds on this machine. A plugin that raises is a finding of its own."""
        found: list[tuple[Entry, Finding]] = []
        for name in self._implementers("core_doctor"):
            entry = self._plugins[name][0]
            try:
                answers = _many(entry, "core_doctor", self._call("core_doctor", name, {}) or ())
                found += [(entry, typed(entry, "hook core_doctor", one, Finding)) for one in answers]
            except PluginError as error:
                found.append((entry, Finding(level="error", message=error.message, hint=error.hint)))
        return found

    def implementing(self, *hooks: str) -> list[Entry]:
        """Return the plugins that implement or wrap any of `hooks`, in the order registered."""
        names = {name for hook in hooks for name in (*self._implementers(hook), *self._wrappers(hook))}
        return [entry for name, (entry, _) in self._plugins.items() if name in names]

    def has(self, hook: str) -> bool:
        """Whether any plugin implements a hook; callers ask once and keep the answer."""
        return bool(self._implementers(hook))

    def _register(self, entry: Entry) -> None:
        name = f"{entry.dist}:{entry.name}"
        try:
            plugin = entry.load()
            self._manager.register(plugin, name=name)
            self._manager.check_pending()
        except pluggy.PluginValidationError as error:
            self._forget(name)
            self.failures.append(LoadFailure(entry, "CORE-P107", f"its hooks do not fit: {_one_line(error)}"))
        except Exception as error:
            self._forget(name)
            self.failures.append(LoadFailure(entry, "CORE-P103", f"it failed to import: {describe(error)}"))
        else:
            self.entries.append(entry)
            self._plugins[name] = (entry, plugin)
            self._options[name] = self._options_of(entry, getattr(plugin, OPTIONS_MODEL, None))

    def options(self, entry: Entry) -> dict[str, Any]:
        """Return the options of a registered plugin."""
        return dict(self._options[f"{entry.dist}:{entry.name}"])

    def _forget(self, name: str) -> None:
        if self._manager.has_plugin(name):
            self._manager.unregister(name=name)

    def _ask(self, hook: str, **arguments: Any) -> Iterator[tuple[Entry, Any]]:
        """Yield each implementer's answer that is not None, in pluggy's order."""
        for name in self._implementers(hook):
            answer = self._call(hook, name, arguments)
            if answer is not None:
                yield self._plugins[name][0], answer

    def _call(self, hook: str, name: str, arguments: Mapping[str, Any]) -> Any:
        """Call one plugin's implementation, inside every wrapper, so that its answer has a known author."""
        try:
            answer = self._caller(hook, name)(**arguments, options=self._options[name])
        except SignalExit:
            raise
        except (Exception, SystemExit) as error:
            raise raised(self._culprit(error, name), f"hook {hook}", error) from error
        if isinstance(answer, list):  # collected answers of this one plugin; a first-result hook gives a bare value
            return answer[0] if answer else None
        return answer

    def _caller(self, hook: str, name: str) -> Callable[..., Any]:
        """Return what calls one plugin's implementation; made once, because plugins only come at the start."""
        known = self._callers.get((hook, name))
        if known is None:
            mine = {name, *self._wrappers(hook)}
            others = [plugin for other, (_, plugin) in self._plugins.items() if other not in mine]
            known = self._callers[hook, name] = self._manager.subset_hook_caller(hook, others)
        return known

    def _implementers(self, hook: str) -> list[str]:
        found = getattr(self._manager.hook, hook).get_hookimpls()
        return [impl.plugin_name for impl in reversed(found) if not (impl.wrapper or impl.hookwrapper)]

    def _wrappers(self, hook: str) -> list[str]:
        found = getattr(self._manager.hook, hook).get_hookimpls()
        return [impl.plugin_name for impl in found if impl.wrapper or impl.hookwrapper]

    def _culprit(self, error: BaseException, called: str) -> Entry:
        """Return the plugin whose frame is innermost: a wrapper may have raised instead of the plugin called."""
        owners = {id(vars(plugin)): entry for entry, plugin in self._plugins.values() if isinstance(plugin, ModuleType)}
        culprit, trace = self._plugins[called][0], error.__traceback__
        while trace is not None:
            culprit = owners.get(id(trace.tb_frame.f_globals), culprit)
            trace = trace.tb_next
        return culprit


def _many(entry: Entry, hook: str, answer: Any) -> list[Any]:
    """Consume an iterable answer here, because a generator's exceptions surface only now."""
    items: list[Any] = guarded(entry, f"hook {hook}", list, answer)
    return items


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
