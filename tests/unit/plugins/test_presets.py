"""`--compile` and whoever carries it out: options that a hook plugin has while a switch is on."""

from __future__ import annotations

import pytest

from core.api.errors import ConfigError, PluginError
from core.config.resolved import Options
from core.selection.resolver import resolve

MODULE = """
__core_presets__ = {"compile": {"backend": "fast", "measure": 3}}
"""


@pytest.fixture
def started(site):
    """`started(**runtime)` -> the options of the hook plugin `maker` in the plan."""
    site.install_world()

    installed = []

    def start(source=MODULE, *, select=(), **runtime):
        if source is not None and not installed:
            installed.append(source)
            site.install("acme", {"core.plugins": {"maker": "acme_hooks"}}, {"acme_hooks": source})
        options = Options.model_validate({"runtime": runtime, "select": dict(select)})
        found = resolve(options, catalogue=site.catalogue()).config.plan.hooks
        return {one.name: one.options for one in found}

    return start


@pytest.mark.covers("COMP-01")
def test_a_plugin_has_its_presets_while_the_switch_is_on(started):
    assert started() == {"maker": {}}
    assert started(compile=True) == {"maker": {"backend": "fast", "measure": 3}}


def test_what_the_user_gives_outranks_them(started):
    given = {"maker": {"backend": "eager", "cache": False}}
    assert started(compile=True, plugin_options=given) == {"maker": {"backend": "eager", "measure": 3, "cache": False}}
    assert started(plugin_options=given) == given


@pytest.mark.parametrize("source", [None, "", "__core_presets__ = {'other': {}}"])
def test_a_switch_that_nobody_carries_out_says_what_to_install(started, source):
    with pytest.raises(ConfigError, match="CORE-C119 --compile was given, and no plugin that takes part") as refused:
        started(source, compile=True)
    assert "`pip install core-plugin-torch-compile`" in refused.value.hint


def test_a_plugin_that_is_left_out_is_named(started, site):
    site.install("core-plugin-torch-compile", {"core.plugins": {"torch_compile": "own"}}, {"own": MODULE})
    with pytest.raises(ConfigError, match="CORE-C119") as refused:
        started(None, compile=True, select={"disable_plugin": ["torch_compile"]})
    assert refused.value.hint.startswith("core-plugin-torch-compile is installed, and left out")
    assert started(None, compile=True) == {"torch_compile": {"backend": "fast", "measure": 3}}


@pytest.mark.parametrize("source", ["__core_presets__ = 3", "__core_presets__ = {'compile': 3}"])
def test_presets_of_another_type_are_the_plugins_fault(started, source):
    with pytest.raises(PluginError, match=r"'maker' \(acme 1.0\): __core_presets__ gave a int, not a dict"):
        started(source, compile=True)
