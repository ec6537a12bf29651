"""Participants that take part by themselves, and what a participant may ask core for."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from core.api import ParticipantSpec
from core.api.errors import PluginError
from core.config.resolved import Options
from core.engine.assembly import settings_of
from core.engine.driven import DrivenPlugins
from core.plugins.active import ActivePlugins
from core.plugins.hooks import Hooks
from core.plugins.plan import PlannedPlugin, PluginPlan
from core.selection.participants import choose_participants
from core.selection.sampling import check_fields
from core.selection.select import Selector

MANIFEST = """
from core.api import ParticipantSpec

def made(name, **given):
    return ParticipantSpec(name=name, impl="parts.impl:Half", api=1, summary="", **given)

ALWAYS = made("always", automatic=True, honours=("grammar",))
ABOVE = made("above", automatic=True)
POOLS = made("pools", automatic=True, tasks=frozenset({"pool"}))
AWAY = made("away", automatic=True, devices=frozenset({"gpu"}))
ASKED = made("asked", honours=("grammar",))
"""
NAMES = ("always", "above", "pools", "away", "asked")
PLANNED = PlannedPlugin(group="core.participants", name="odd", value="a:B", dist="acme", version="1.0", api=1)


@pytest.fixture
def chosen(site):
    points = {"core.participants": {name: f"parts.manifest:{name.upper()}" for name in NAMES}}
    site.install("core-plugin-parts", points, {"parts.manifest": MANIFEST})

    def choose(*asks, task="generate", disabled=()):
        selector = Selector(site.catalogue(*disabled), Hooks())
        return choose_participants(selector, asks, "cpu", task), selector.reports

    return choose


@pytest.mark.parametrize(
    ("asks", "given", "names"),
    [
        ((), {}, ["above", "always"]),
        (("asked",), {}, ["above", "always", "asked"]),
        (("asked", "above"), {}, ["always", "asked", "above"]),
        ((), {"task": "pool"}, ["above", "always", "pools"]),
        ((), {"disabled": ["always"]}, ["above"]),
    ],
)
def test_automatic_ones_come_before_those_that_are_named(chosen, asks, given, names):
    found, reports = chosen(*asks, **given)
    assert [one.entry.name for one in found] == names
    assert [report.chosen.entry.name for report in reports] == names
    assert {report.chosen.entry.name for report in reports if report.asked} == set(asks)


@pytest.mark.parametrize(("name", "told"), [("pools", "takes part in pool, not in generate"), ("away", "gpu")])
def test_one_that_is_named_and_cannot_take_part_says_why(chosen, name, told):
    with pytest.raises(PluginError, match=told):
        chosen(name)


def test_two_that_carry_out_one_field_are_refused(chosen):
    found, _ = chosen("asked")
    with pytest.raises(PluginError, match=r"CORE-P165 plugins 'always' .* and 'asked' .* both take .* 'grammar'"):
        check_fields(found)


def test_settings_are_options_of_the_engine():
    options = Options(structured={"grammar_timeout": 3.0})
    found = settings_of(options, PLANNED, ("grammar_timeout", "max_num_seqs"))
    assert found == {"grammar_timeout": 3.0, "max_num_seqs": options.scheduler.max_num_seqs}


@pytest.mark.parametrize("name", ["api_key", "hash_seed", "grammar_timeouts"])
def test_other_options_are_not_to_be_had(name):
    with pytest.raises(PluginError, match=rf"CORE-P132 participant 'odd' \(acme 1.0\) cannot have .* '{name}'"):
        settings_of(Options(), PLANNED, (name,))


@pytest.fixture
def driven():
    config = SimpleNamespace(shape=SimpleNamespace(vocab_size=7))
    return DrivenPlugins(config, ActivePlugins(PluginPlan(), [], Hooks()), lambda: None)


def spec(*drives):
    return ParticipantSpec(name="odd", impl="a:B", api=1, summary="", drives=drives)


def test_a_kind_without_a_context_is_driven_by_nobody(driven):
    with pytest.raises(PluginError, match=r"CORE-P132 participant .* cannot drive 'core.drafters'"):
        driven.asked_by(PLANNED, spec("core.drafters"))


def test_a_kind_is_handed_to_those_that_drive_it(driven):
    assert list(driven.asked_by(PLANNED, spec("core.structured_output"))("core.structured_output")) == []
    with pytest.raises(PluginError, match="CORE-P132 plugins of the kind structured-output backend"):
        driven.asked_by(PLANNED, spec())("core.structured_output")
