from __future__ import annotations

import logging
import sys

import pytest

from core.api.errors import PluginError
from core.plugins.hooks import Hooks

HEAD = "from core.api import ConfigPatch, Problem, hookimpl\nimport pluggy\n"


def hooks(site, **modules):
    """Return the hooks of one distribution per keyword, `name="source"`."""
    for name, source in modules.items():
        site.install(f"dist-{name}", {"core.plugins": {name: f"hook_{name}"}}, {f"hook_{name}": HEAD + source})
    return Hooks(site.catalogue().entries("core.plugins"))


CONFIGURE = """
@hookimpl
def core_configure(config, facts):
    yield ConfigPatch(path="kv.block_size", value=config["kv"]["block_size"] * 2, reason=facts["platform"])
"""


def test_patches_carry_their_author(site):
    proposals = hooks(site, a=CONFIGURE, b=CONFIGURE).configure({"kv": {"block_size": 16}}, {"platform": "cpu"})
    assert sorted(one.entry.dist for one in proposals) == ["dist-a", "dist-b"]
    assert {(one.patch.value, one.patch.reason) for one in proposals} == {(32, "cpu")}


def test_an_implementation_may_name_a_subset_of_the_parameters(site):
    source = "@hookimpl\ndef core_validate():\n    return [Problem(level='warning', code='X', message='m')]\n"
    ((entry, problem),) = hooks(site, a=source).validate({})
    assert (entry.name, problem.message) == ("a", "m")


def test_the_first_answer_wins_and_none_passes_on(site):
    choose = "@hookimpl{}\ndef core_select(group, candidates):\n    return {}\n"
    found = hooks(site, a=choose.format("(tryfirst=True)", "None"), b=choose.format("", "candidates[-1]"))
    name, author = found.select("core.executors", ["x", "y"], {})
    assert (name, author.dist) == ("y", "dist-b")
    assert Hooks().select("core.executors", ["x"], {}) is None


def test_choosing_what_is_no_candidate_is_the_plugins_error(site):
    source = "@hookimpl\ndef core_select(group):\n    return 'z'\n"
    with pytest.raises(PluginError, match=r"'a' \(dist-a 1.0\) chose 'z' for core.executors; it may choose among x, y"):
        hooks(site, a=source).select("core.executors", ["x", "y"], {})


@pytest.mark.parametrize(
    "body",
    [
        "raise KeyError('k')",
        "yield ConfigPatch(path='a', value=1, reason='r'); raise KeyError('k')",
    ],
)
def test_an_exception_is_attributed_to_plugin_and_distribution(site, body):
    source = f"@hookimpl\ndef core_configure(config):\n    {body}\n"
    with pytest.raises(
        PluginError, match=r"'bad' \(dist-bad 1.0\): hook core_configure raised KeyError: 'k'"
    ) as caught:
        hooks(site, a=CONFIGURE, bad=source).configure({"kv": {"block_size": 1}}, {"platform": "p"})
    assert caught.value.code == "CORE-P108"


def test_a_wrapper_sees_every_answer_and_is_blamed_for_its_own_exceptions(site):
    wrapper = "@hookimpl(wrapper=True)\ndef core_configure():\n    yield\n    raise ValueError('wrapper')\n"
    with pytest.raises(PluginError, match=r"'w' \(dist-w 1.0\)"):
        hooks(site, a=CONFIGURE, w=wrapper).configure({"kv": {"block_size": 1}}, {"platform": "p"})


@pytest.mark.parametrize("answer", ["['text']", "[Problem(level='error', code='c', message='m')]"])
def test_a_foreign_answer_is_refused(site, answer):
    source = f"@hookimpl\ndef core_configure():\n    return {answer}\n"
    with pytest.raises(PluginError, match="not a ConfigPatch"):
        hooks(site, a=source).configure({}, {})


def test_an_answer_that_is_no_list_is_refused(site):
    with pytest.raises(PluginError, match="'int' object is not iterable"):
        hooks(site, a="@hookimpl\ndef core_configure():\n    return 3\n").configure({}, {})


@pytest.mark.parametrize(
    ("source", "code", "reason"),
    [
        ("@hookimpl\ndef core_confgure(config): ...\n", "CORE-P107", "core_confgure"),
        ("@hookimpl\ndef core_configure(color): ...\n", "CORE-P107", "color"),
        ("import no_such_library\n", "CORE-P103", "no_such_library"),
    ],
)
def test_a_module_that_does_not_fit_is_recorded_and_left_out(site, source, code, reason):
    found = hooks(site, a=CONFIGURE, bad=source)
    (failure,) = found.failures
    assert (failure.entry.name, failure.code) == ("bad", code)
    assert reason in failure.reason
    assert [entry.name for entry in found.entries] == ["a"]
    assert len(found.configure({"kv": {"block_size": 1}}, {"platform": "p"})) == 1


def test_an_optional_hook_of_another_core_version_is_no_failure(site):
    assert not hooks(site, a="@hookimpl(optionalhook=True)\ndef core_future(): ...\n").failures


def test_events_reach_everybody_whoever_raises(site, caplog):
    source = "SEEN = []\n@hookimpl\ndef core_engine_event(event, details):\n    SEEN.append((event, dict(details)))\n"
    found = hooks(site, a=source, b=source + "    raise OSError('disk full')\n", c=source)
    with caplog.at_level(logging.ERROR):
        found.engine_event("ready", {"blocks": 3})
    assert all(sys.modules[f"hook_{name}"].SEEN == [("ready", {"blocks": 3})] for name in "abc")
    assert "'b' (dist-b 1.0)" in caplog.text and "disk full" in caplog.text


def test_two_distributions_may_use_one_hook_name(site):
    for dist in ("acme", "bolt"):
        site.install(dist, {"core.plugins": {"x": f"hook_{dist}"}}, {f"hook_{dist}": HEAD + CONFIGURE})
    assert len(Hooks(site.catalogue().entries("core.plugins")).entries) == 2
