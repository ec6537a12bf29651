from __future__ import annotations

import importlib.metadata
import sys

import pytest

from core.api.descriptors import SchedulerPolicySpec
from core.api.errors import PluginError
from core.plugins.catalog import Catalogue
from core.plugins.drivers import Candidate, _manager, describe, guarded, instantiate, load_descriptors, load_impl, unmet
from core.plugins.kinds import KINDS
from core.signals import SignalExit

GROUP = "core.schedulers"


def manifest(**changes):
    fields = {"name": "a", "impl": "acme_impl:Policy", "api": 1, "summary": "", **changes}
    return f"from core.api import SchedulerPolicySpec\nA = SchedulerPolicySpec(**{fields!r})\n"


GOOD = manifest(name="good").replace("A =", "GOOD =")


def load(site, source):
    """Install a good plugin and one of `source`, and load the group."""
    site.install("good", {GROUP: {"good": "good_mod:GOOD"}}, {"good_mod": GOOD})
    site.install("acme", {GROUP: {"a": "acme_mod:A"}}, {"acme_mod": source}, version="4.2")
    return load_descriptors(site.catalogue().entries(GROUP))


def test_a_signal_that_comes_during_an_import_is_no_fault_of_the_plugin(site, entry):
    ends = "from core.signals import SignalExit\nraise SignalExit(143)\n"
    with pytest.raises(SignalExit):
        load(site, ends)
    site.install("late", {}, {"late_impl": ends})
    with pytest.raises(SignalExit):
        load_impl("late_impl:A", entry())


def test_descriptors_are_loaded_and_implementations_are_not(site):
    candidates, failures = load(site, manifest())
    assert [one.descriptor.name for one in candidates] == ["a", "good"]
    assert candidates[0].entry.dist == "acme"
    assert not failures
    assert "acme_impl" not in sys.modules


@pytest.mark.parametrize(
    ("source", "code", "reason"),
    [
        ("import no_such_library", "CORE-P103", "No module named 'no_such_library' ("),
        ("B = 1", "CORE-P103", "AttributeError"),
        ("assert 1 == 2, 'sums'", "CORE-P103", "AssertionError: sums"),
        ("raise SystemExit(3)", "CORE-P103", "SystemExit"),
        ("A = (", "CORE-P103", "SyntaxError"),
        (manifest(colour="red"), "CORE-P103", "colour"),
        ("A = 'a string'", "CORE-P106", "acme_mod:A is a str, not a SchedulerPolicySpec"),
        (manifest().replace("SchedulerPolicySpec", "ExecutorSpec"), "CORE-P106", "is a ExecutorSpec"),
        (manifest(name="b"), "CORE-P106", "its descriptor is named 'b'"),
        (manifest(api=KINDS[GROUP].api + 1), "CORE-P104", "needs scheduling policy API 2; this core offers 1"),
        (manifest(api=KINDS[GROUP].api - 2), "CORE-P104", "needs scheduling policy API -1"),
        (
            manifest(requires=("no-such-library>=2",)),
            "CORE-P105",
            "it needs no-such-library>=2, which is not installed",
        ),
        (manifest(requires=("pluggy>=999",)), "CORE-P105", "it needs pluggy>=999, "),
        (
            manifest(imports=("no_such_module",)),
            "CORE-P111",
            "it needs the module no_such_module, which",
        ),
    ],
)
def test_a_bad_plugin_is_recorded_and_the_good_one_lives(site, source, code, reason):
    candidates, failures = load(site, source)
    assert [one.entry.name for one in candidates] == ["good"]
    (failure,) = failures
    assert failure.state == ("absent" if code == "CORE-P111" else "failed")
    assert (failure.entry.dist, failure.code) == ("acme", code)
    assert reason in failure.reason
    error = failure.error("--scheduler-policy a")
    assert "scheduling policy 'a' (acme 4.2)" in error.message
    assert "requested by --scheduler-policy a" in error.hint


def test_too_new_a_plugin_asks_for_a_newer_core(site):
    _, (failure,) = load(site, manifest(api=9))
    assert failure.hint == "Upgrade core."


def test_requirements_hold_or_say_what_is_there_instead():
    version = importlib.metadata.version("pluggy")
    found = unmet(("pluggy>=1", "pluggy<0.1", "nothing-like-this; python_version < '3'", "not a requirement!"))
    assert found == [
        ("pluggy<0.1", f"{version} is installed"),
        ("not a requirement!", "which is not a valid requirement"),
    ]


def test_the_manager_refuses_to_pick_between_two_owners_of_a_name(site):
    for dist in ("acme", "bolt"):
        site.install(dist, {GROUP: {"a": f"{dist}_mod:A"}}, {f"{dist}_mod": manifest()})
    manager, failures = _manager(site.catalogue().entries(GROUP))
    assert not failures
    with pytest.raises(PluginError, match=r"acme 1\.0 and bolt 1\.0"):
        manager["a"]


def test_load_impl_returns_nested_attributes(entry):
    assert load_impl("os:path.join", entry()) is __import__("os").path.join


@pytest.mark.parametrize(
    ("path", "cause"),
    [
        ("no_such_module:A", "No module named 'no_such_module'"),
        ("os:no_such_thing", "AttributeError"),
        ("broken_mod:A", "OSError: libamd.so: not found (broken_mod.py:4)"),
    ],
)
def test_load_impl_names_the_plugin_and_the_innermost_cause(site, entry, path, cause):
    source = """\
        def load():
            # the library is loaded by hand

            raise OSError("libamd.so: not found")
        try:
            load()
        except OSError as error:
            raise RuntimeError("cannot load") from error
        """
    site.install("x", {}, {"broken_mod": source})
    with pytest.raises(PluginError) as caught:
        load_impl(path, entry("rocm", dist="core-plugin-rocm", version="0.4"))
    assert caught.value.code == "CORE-P103"
    assert "'rocm' (core-plugin-rocm 0.4)" in caught.value.message
    assert cause in caught.value.message.replace(f"{site.root.name}/", "")
    assert caught.value.__cause__ is not None


def test_a_plugin_that_exits_ends_nothing_but_itself(entry):
    with pytest.raises(PluginError, match=r"CORE-P108 .*acme.*probe raised SystemExit: no card"):
        guarded(entry(), "probe", sys.exit, "no card")
    with pytest.raises(SignalExit):  # but the user's wish to end the process is heard
        guarded(entry(), "probe", _end)


def _end():
    raise SignalExit(143)


FITTING = """
class A:
    def __init__(self):
        raise KeyError('k')
    def key(self, request): ...
    def victim(self, running): ...
"""


def test_instantiate_attributes_a_constructor_that_raises(site, entry):
    site.install("x", {}, {"ctor_mod": FITTING})
    with pytest.raises(PluginError, match="ctor_mod:A raised KeyError: 'k'") as caught:
        instantiate(Candidate(entry(), SchedulerPolicySpec(name="a", impl="ctor_mod:A", api=1, summary="")), {})
    assert caught.value.code == "CORE-P108"


def test_a_cause_is_told_in_one_line():
    try:
        try:
            raise ValueError("two\nlines")
        except ValueError as error:
            raise RuntimeError("outer") from error
    except RuntimeError as error:
        text = describe(error)
    assert text.startswith("RuntimeError: outer, caused by ValueError: two lines (plugins/test_plugin_drivers.py:")


def test_failures_do_not_depend_on_the_order(site, entry):
    entries = [entry("x", value="missing_x:A"), entry("y", value="missing_y:A")]
    _, failures = load_descriptors(Catalogue(reversed(entries)).entries(GROUP))
    assert [one.entry.name for one in failures] == ["x", "y"]


def test_an_integer_that_was_dropped_is_refused_though_it_is_the_one_before(site):
    manifest = "from core.api import DrafterSpec\nA = DrafterSpec(name='a', impl='acme_impl:A', api=1, summary='')\n"
    site.install("acme", {"core.drafters": {"a": "acme_mod:A"}}, {"acme_mod": manifest})
    candidates, (failure,) = load_descriptors(site.catalogue().entries("core.drafters"))
    assert (candidates, failure.code, failure.hint) == ([], "CORE-P104", "Upgrade acme.")
    assert failure.reason == "it needs drafter API 1; this core offers 2"
