"""Whose options they are: `NAME` means the plugin that takes part, `NAME@DISTRIBUTION` the one of a distribution."""

from __future__ import annotations

import pytest

from core.api.descriptors import ExecutorSpec
from core.api.errors import ConfigError, PluginError
from core.config.resolved import Options
from core.plugins.drivers import Candidate
from core.plugins.options import checked_options, option_rows
from core.selection.resolver import resolve

MANIFEST = """
from core.api import *
EXECUTOR = ExecutorSpec(name="twin", impl="world.impl:Executor", api=1, summary="", options="world.impl:Options")
CONNECTOR = KVConnectorSpec(name="twin", impl="world.impl:Nothing", worker_impl="world.impl:Nothing", api=2, summary="")
"""

OPTIONS = """
from pydantic import BaseModel, Field, field_validator

class Options(BaseModel):
    size: int = Field(default_factory=lambda: {}["no default"])

    @field_validator("size")
    @classmethod
    def known(cls, value):
        return {}[value]
"""


@pytest.fixture
def run(site):
    """Start with the executor of acme or bolt, and connectors; return `(group, dist) -> options`."""
    site.install_world()
    for dist in ("acme", "bolt"):
        points = {"core.executors": {"twin": f"{dist}_manifest:EXECUTOR"}}
        points["core.kv_connectors"] = {"twin": f"{dist}_manifest:CONNECTOR"}
        site.install(dist, points, {f"{dist}_manifest": MANIFEST})

    def run(options, executor="twin@acme", connectors=()):
        sections = {"select": {"executor": executor, "kv_connector": list(connectors)}}
        resolution = resolve(
            Options.model_validate({**sections, "runtime": {"plugin_options": options}}), catalogue=site.catalogue()
        )
        found = {(one.group, one.dist): one.options for one in resolution.config.plan.drivers if one.name == "twin"}
        return found, [warning.message for warning in resolution.warnings]

    return run


def test_a_bare_name_means_the_one_that_takes_part(run):
    for dist in ("acme", "bolt"):
        found, warnings = run({"twin": {"threads": 5}}, executor=f"twin@{dist}")
        assert found == {("core.executors", dist): {"threads": 5}} and not warnings


def test_a_distribution_keeps_them_apart(run):
    options = {"twin@acme": {"threads": 5}, "twin@bolt": {"threads": 6}}
    for dist, threads in (("acme", 5), ("bolt", 6)):
        found, warnings = run(options, executor=f"twin@{dist}")
        assert found == {("core.executors", dist): {"threads": threads}}
        other = "bolt" if dist == "acme" else "acme"
        assert warnings == [f"options are given for plugin 'twin@{other}', which takes no part here"]


def test_the_distribution_outranks_the_bare_name(run):
    for options in ({"twin": {"threads": 5}, "twin@ACME": {"threads": 6}}, {"twin@acme": {"threads": 6}, "twin": {}}):
        assert run(options)[0]["core.executors", "acme"] == {"threads": 6}


def test_two_that_both_take_part_must_be_told_apart(run):
    with pytest.raises(ConfigError) as caught:
        run({"twin": {"threads": 5}}, connectors=["twin@bolt"])
    assert caught.value.code == "CORE-C114"
    assert "acme and bolt, which all take part" in caught.value.message and "twin@bolt" in caught.value.hint
    found, _ = run({"twin@acme": {"threads": 5}, "twin@bolt": {"path": "/x"}}, connectors=["twin@bolt"])
    assert found["core.executors", "acme"] == {"threads": 5}
    assert found["core.kv_connectors", "bolt"] == {"path": "/x"}


@pytest.mark.parametrize(
    ("key", "hint"),
    [("twni", "Did you mean 'twin'?"), ("twin@blot", "Did you mean 'twin@bolt'?"), ("twin@elsewhere", "twin@acme")],
)
def test_options_of_nobody_are_refused(run, key, hint):
    with pytest.raises(ConfigError) as caught:
        run({key: {"threads": 5}})
    assert caught.value.code == "CORE-C112" and hint in caught.value.hint


def test_a_wrong_value_names_the_distribution(run):
    with pytest.raises(ConfigError, match=r"CORE-C111 options of plugin 'twin' \(acme 1.0\): threads"):
        run({"twin@acme": {"threads": "many"}})


@pytest.mark.parametrize("options", ["class Options: ...", OPTIONS])
def test_options_that_raise_are_the_plugins_fault(site, entry, options):
    site.install("acme", {"core.executors": {"a": "odd_manifest:X"}}, {"odd_options": options})
    spec = ExecutorSpec(name="a", impl="x:Y", api=1, summary="", options="odd_options:Options")
    candidate = Candidate(entry(dist="acme"), spec)
    for use in (option_rows, lambda one: checked_options(one, {"size": 3})):
        with pytest.raises(PluginError, match=r"CORE-P108 .*acme 1.0.*odd_options:Options raised"):
            use(candidate)
