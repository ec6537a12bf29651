"""Whatever a plugin raises when its object is made or asked: kind, name, distribution, version and innermost cause."""

from __future__ import annotations

import re
from importlib import import_module
from types import SimpleNamespace

import pytest

from core.api.descriptors import DESCRIPTORS
from core.api.errors import EngineError, PluginError
from core.api.io_processors import IOContext
from core.config.resolved import Options
from core.engine import core as engine_core
from core.frontend import front_plugins as frontend
from core.plugins.active import ActivePlugins
from core.plugins.contracts import IMPLEMENTATIONS, check_impl
from core.plugins.drivers import Candidate
from core.plugins.entry import Entry
from core.plugins.fitting import methods_of
from core.plugins.hooks import Hooks
from core.plugins.kinds import kind_of
from core.plugins.plan import PlannedPlugin, PluginPlan
from core.server.plugin_routes.table import RouteTable

KINDS = sorted(set(DESCRIPTORS) - {"core.kernels", "core.option_sections"})
CAUSE = "RuntimeError: no, caused by OSError: the disk is away"


def fail(*given, **named):
    try:
        raise OSError("the disk is away")
    except OSError as error:
        raise RuntimeError("no") from error


class Failing:
    """Fails in the methods of `at`, and gives `wrong` from no method."""

    def __init__(self, at=()):
        vars(self).update(dict.fromkeys(at, fail))

    def declare(self, registry): ...

    def bind(self, client): ...


def active(group, make):
    """Return the plugins of a plan with one driver `odd`, which `make` makes."""
    planned = PlannedPlugin(group=group, name="odd", value="m:S", dist="acme", version="1.0", api=1)
    entry = Entry(group, "odd", "acme", "1.0", "m:S")
    spec = SimpleNamespace(
        impl="m:Impl", mounts=(), public=(), settings=(), drives=(), key_headers=(), exposed_headers=()
    )
    found = ActivePlugins(PluginPlan(drivers=(planned,)), [(planned, Candidate(entry, spec))], Hooks())
    found._loaded[entry, "m:Impl"] = make
    return found


def named(group, what):
    return re.escape(f"CORE-P108 {kind_of(group).label} 'odd' (acme 1.0): {what} raised {CAUSE} (")


@pytest.mark.parametrize("group", KINDS)
def test_a_constructor_is_named(group):
    plugins = active(group, fail)
    with pytest.raises(PluginError, match=named(group, "its constructor")):
        plugins.make(plugins.planned(group))


@pytest.mark.parametrize("group", KINDS)
def test_what_is_asked_of_it_is_named(group):
    plugins = active(group, None)
    planned = plugins.planned(group)
    with pytest.raises(PluginError, match=named(group, "ask()")):
        plugins.guard(planned, "ask()", fail, 1, x=2)
    with pytest.raises(PluginError, match=named(group, "items()")):
        list(plugins.guard_items(planned, "items()", lambda: (fail() for _ in range(1))))


def test_an_error_with_a_code_is_its_own():
    def refuse(*given, **named):
        raise EngineError("ACME-1", "no card")

    plugins = active("core.executors", refuse)
    with pytest.raises(EngineError, match="ACME-1 no card"):
        plugins.make(plugins.planned("core.executors"))


def whole(group, **changes):
    """Return a class that fits a kind, and `changes` of its methods."""
    module, _, name = IMPLEMENTATIONS[group].protocol.partition(":")
    protocol = getattr(import_module(module), name)
    methods = {**methods_of(protocol), **({"__init__": protocol.__init__} if "__init__" in vars(protocol) else {})}
    bases = (protocol,) if IMPLEMENTATIONS[group].closed else ()
    return type("Odd", bases, {name: one for name, one in {**methods, **changes}.items() if one is not None})


def methods():
    for group in KINDS:
        contract = IMPLEMENTATIONS[group]
        for name in methods_of(whole(group)):
            if name not in contract.may_lack:
                yield group, name, 3, "its {} is a int, not a method"
                if not contract.closed:  # a base class has them all
                    yield group, name, None, "it lacks {}("


@pytest.mark.parametrize(("group", "method", "change", "told"), list(methods()))
def test_a_method_that_is_missing_or_none_is_named(group, method, change, told):
    entry = Entry(group, "odd", "acme", "1.0", "m:S")
    check_impl(entry, "m:Odd", whole(group))
    with pytest.raises(PluginError) as caught:
        check_impl(entry, "m:Odd", whole(group, **{method: change}))
    assert caught.value.code == "CORE-P160" and told.format(method) in caught.value.message
    assert f"{kind_of(group).label} 'odd' (acme 1.0): m:Odd does not fit" in caught.value.message


@pytest.mark.parametrize("group", [group for group in KINDS if IMPLEMENTATIONS[group].closed])
def test_a_method_that_nobody_calls_is_named(group):
    entry = Entry(group, "odd", "acme", "1.0", "m:S")
    with pytest.raises(PluginError, match=r"CORE-P160.*it has settel, which nobody calls"):
        check_impl(entry, "m:Odd", whole(group, settel=fail))
    with pytest.raises(PluginError, match=r"CORE-P160.*it is no subclass of core.api"):
        check_impl(entry, "m:Odd", type("Odd", (), {}))


def starts_an_engine(plugins, monkeypatch):
    monkeypatch.setattr(engine_core, "enter", lambda plan: plugins)
    monkeypatch.setattr(engine_core, "apply_environment", lambda environment: None)
    options = SimpleNamespace(runtime=SimpleNamespace(start_timeout=1.0))
    engine_core.EngineCore.start(SimpleNamespace(plan=plugins.plan, environment={}, options=options))


def starts_a_front_end(plugins, monkeypatch):
    monkeypatch.setattr(frontend, "enter", lambda plan: plugins)
    frontend.FrontPlugins(plugins.plan)
    context, group = IOContext(*[None] * len(IOContext.__dataclass_fields__)), "core.io_processors"
    frontend._driven(plugins, None, [group], group, context)


def starts_routes(plugins, monkeypatch):
    monkeypatch.setattr("core.server.plugin_routes.client.ServedClient", lambda *_: None)
    table = RouteTable.declare(plugins)
    empty = {"mounted_dialects": {}, "client_dialects": {}, "key_headers": set(), "exposed_headers": set()}
    table.bind(SimpleNamespace(options=Options(), **empty))


@pytest.mark.parametrize(
    ("group", "make", "start", "what"),
    [
        ("core.executors", fail, starts_an_engine, "its constructor"),
        ("core.stat_sinks", fail, starts_a_front_end, "its constructor"),
        ("core.io_processors", fail, starts_a_front_end, "its constructor"),
        ("core.tool_servers", fail, lambda plugins, _: plugins.driven("core.tool_servers"), "its constructor"),
        ("core.routes", fail, starts_routes, "its constructor"),
        ("core.routes", lambda options: Failing(["declare"]), starts_routes, "declare()"),
        ("core.routes", lambda options: Failing(["bind"]), starts_routes, "bind()"),
    ],
)
def test_where_core_makes_it(monkeypatch, group, make, start, what):
    with pytest.raises(PluginError, match=named(group, what)):
        start(active(group, make), monkeypatch)
