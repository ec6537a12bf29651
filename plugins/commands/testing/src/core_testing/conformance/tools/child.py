"""The child's side: looks at plugins in a fresh interpreter. Run as `python -m` with a mode, JSON on standard input."""

from __future__ import annotations

import json
import os
import pkgutil
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

from core.plugins.catalog import Catalogue
from core.plugins.drivers import objects_of
from core.plugins.entry import Entry
from core.plugins.kinds import kind_of
from core_testing.conformance.tools import child_tasks
from core_testing.conformance.tools.child_tasks import Facts, error_told, load, without_torch
from core_testing.conformance.tools.guard import Guard, deny_system_files

_NO_TORCH = (
    "core.api",
    "core.selection.resolver",
    "core.config",
    "core.engine",
    "core.frontend",
    "core.plugins",
    "core.server",
)
_TORCH = ("core.layers", "core.ops", "core.worker")


def manifests(request: Mapping[str, Any]) -> Facts:
    """Import each entry point under the guard: what it asks for, what it does, how long it takes."""
    import_module("core.api")
    load("core.api:Descriptor")
    facts = _apart(request["distributions"], _manifest)
    entries = [Entry(*fields) for one in request["distributions"] for fields in one["entries"]]
    for entry in entries:
        # Alone, so that none finds what another imported.
        facts[_title(entry)]["torch_free"] = _in_a_copy([entry], _torch_free)[_title(entry)]
    return facts


def _apart(distributions: Sequence[Mapping[str, Any]], look: Callable[[Entry], Facts]) -> Facts:
    """Look at each distribution's plugins in a copy of this process, so that none meets another's imports."""
    facts: Facts = {}
    for distribution in distributions:
        entries = [Entry(*fields) for fields in distribution["entries"]]
        facts.update(_in_a_copy(entries, look))
    return facts


def _in_a_copy(entries: Sequence[Entry], look: Callable[[Entry], Facts]) -> Facts:
    # This process has one thread and has computed nothing yet, so that a copy of it is as good as a fresh one.
    ready, answer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(ready)
        facts = {_title(entry): look(entry) for entry in entries}
        with os.fdopen(answer, "w") as pipe:
            json.dump(facts, pipe)
        os._exit(0)
    os.close(answer)
    with os.fdopen(ready) as pipe:
        text = pipe.read()
    _, status = os.waitpid(pid, 0)
    if status == 0 and text:
        return dict(json.loads(text))
    end = f"the process ended with status {os.waitstatus_to_exitcode(status)}"
    return {_title(entry): {"died": end} for entry in entries}


def _title(entry: Entry) -> str:
    return f"{entry.group}:{entry.name}"


def _manifest(entry: Entry) -> Facts:
    guard, facts = Guard(), Facts()
    guard.start()
    begin = time.thread_time()
    with error_told(facts):
        loaded = entry.load()
        facts["seconds"] = time.thread_time() - begin
    guard.stop()
    facts["imports"], facts["effects"] = guard.imports, guard.effects
    if "error" not in facts:
        facts["probe"] = _probe(loaded)
    return facts


def _probe(descriptor: Any) -> Facts | None:
    """Call a platform's probe, first as it is, then without system files."""
    if not isinstance(path := getattr(descriptor, "probe", None), str):
        return None
    facts = Facts()
    with error_told(facts):
        probe = load(path)
        begin = time.perf_counter()
        facts["kind"] = type(probe()).__name__
        facts["seconds"], facts["torch"] = time.perf_counter() - begin, "torch" in sys.modules
    if "error" not in facts:
        deny_system_files()
        with error_told(facts, "denied"):
            probe()
    return facts


def _torch_free(entry: Entry) -> Facts:
    with without_torch() as facts:
        descriptor = entry.load()
        for field in kind_of(entry.group).torch_free:
            if isinstance(path := getattr(descriptor, field, None), str):
                load(path)
    return facts


def implementations(request: Mapping[str, Any]) -> Facts:
    """Load each implementation from a plan as a worker process does, and compare core and torch before and after."""
    with_torch = [one for one in request["distributions"] if one["torch"]]
    others = [one for one in request["distributions"] if not one["torch"]]
    _import_core(_NO_TORCH)
    Catalogue.scan()  # what is installed is read here, not by each copy
    facts = _apart(others, lambda entry: _implementation(entry, ("core",)))
    if with_torch:
        import_module("torch.nn.functional")
        _import_core(_TORCH)
        facts |= _apart(with_torch, lambda entry: _implementation(entry, ("core", "torch")))
    return facts


def _implementation(entry: Entry, packages: tuple[str, ...]) -> Facts:
    from core_testing.conformance.tools.snapshot import changes, take

    before, facts = take(packages), Facts()
    with error_told(facts):
        facts["same"] = _enter(entry) is _enter(entry)
    facts["changes"] = changes(before, packages, entry.value.split(".")[0].split(":")[0])
    return facts


def _enter(entry: Entry) -> Any:
    """Replay a plan of this one plugin and return its implementation, or the hooks' module."""
    from core.plugins.active import enter
    from core.plugins.kinds import HOOKS_GROUP, KINDS_GROUP
    from core.plugins.plan import PlannedPlugin, PluginPlan

    fields = {name: getattr(entry, name) for name in ("group", "name", "dist", "version", "value")}
    if entry.group == HOOKS_GROUP:
        enter(PluginPlan(hooks=(PlannedPlugin(**fields, api=1),)))
        return entry.load()
    if entry.group == KINDS_GROUP:
        return entry.load()
    descriptor = entry.load()
    planned = PlannedPlugin(**fields, api=descriptor.api)
    # The plan crosses into worker processes as JSON.
    plan = PluginPlan.model_validate_json(PluginPlan(drivers=(planned,)).model_dump_json())
    active = enter(plan)
    for path in objects_of(descriptor):
        active.load(planned, path)
    return active.impl(entry.group)


def _import_core(packages: Sequence[str]) -> None:
    """Import these parts of core, so that what a plugin changes in them is seen."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for package in packages:
            path = getattr(import_module(package), "__path__", [])
            for module in pkgutil.walk_packages(path, f"{package}."):
                import_module(module.name)


_MODES: Mapping[str, Callable[[Mapping[str, Any]], Facts]] = {
    function.__name__: function
    for function in (
        manifests,
        implementations,
        child_tasks.imported,
        child_tasks.reader,
        child_tasks.resolved,
        child_tasks.compile,
        child_tasks.command_help,
    )
}


def main() -> None:
    """Answer one request. What plugins print goes to standard error."""
    answer = os.dup(1)
    os.dup2(2, 1)
    facts = _MODES[sys.argv[1]](json.load(sys.stdin))
    os.write(answer, (json.dumps(facts) + "\n").encode())


if __name__ == "__main__":
    main()
