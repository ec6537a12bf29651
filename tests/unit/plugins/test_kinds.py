"""Core's kinds are objects, each in a module of its own; what stands elsewhere agrees with them."""

from __future__ import annotations

import pkgutil
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from core_plugin_author.scaffold import template_groups

from core.api.descriptors import DESCRIPTORS
from core.api.kinds import Kind
from core.config.resolved import SelectOptions
from core.plugins import kinds
from core.plugins.definition import faults_of
from core.plugins.drivers import descriptor_of
from core.plugins.kinds import HOOKS_GROUP, KINDS, KINDS_GROUP, kind_of
from core_testing.conformance.table import AREAS, checks_of

ROOT = Path(__file__).parents[3]
README = (ROOT / "docs/plugins/kinds/README.md").read_text(encoding="utf-8")
OWN = list(KINDS.values())


def of_every_kind(test):
    return pytest.mark.parametrize("kind", OWN, ids=lambda kind: kind.group.removeprefix("core."))(test)


def test_every_module_has_one_kind_and_the_table_has_it():
    for info in pkgutil.iter_modules(kinds.__path__):
        module = import_module(f"core.plugins.kinds.{info.name}")
        (one,) = [value for value in vars(module).values() if isinstance(value, Kind)]
        assert one is (KINDS.get(one.group) or kind_of(KINDS_GROUP))
        assert one.group == {"hooks": HOOKS_GROUP}.get(info.name, f"core.{info.name}")
    assert len(list(pkgutil.iter_modules(kinds.__path__))) == len(KINDS) + 1


@of_every_kind
def test_what_a_kind_names_is_there(kind):
    if kind.group != HOOKS_GROUP:
        assert descriptor_of(kind.group) is DESCRIPTORS[kind.group] and DESCRIPTORS[kind.group].group == kind.group
    if kind.group not in (HOOKS_GROUP,):
        assert [fault for fault in faults_of(kind) if "checks of the kit" not in fault] == []
    assert kind.checks == AREAS[kind.group] and all("." not in area for area in kind.checks)
    assert [kind.group] == template_groups([kind])


def test_areas_are_named_by_kinds_alone():
    places = ROOT.glob("plugins/commands/testing/src/core_testing/conformance/areas/*.py")
    every = {path.stem for path in places} - {"__init__", "packaging", "manifest", "spawn"}
    assert every == {area for areas in AREAS.values() for area in areas}
    assert checks_of("kinds")


@of_every_kind
def test_its_option_is_a_field_with_its_help(kind):
    if kind.option:
        field = SelectOptions.model_fields[kind.option]
        assert field.description == kind.help and kind.many == (field.default == [])
    assert bool(kind.option) == bool(kind.help)
    assert set(kind.also) <= set(SelectOptions.model_fields)


def test_no_option_of_a_kind_is_left_over():
    other = {"disable_plugin", "plugins", "plugin_file", "plugins_lock", "strict"}
    assert set(SelectOptions.model_fields) - other == {option for kind in OWN for option in kind.options}


@of_every_kind
def test_a_kind_accepts_its_own_integer_and_no_later_one(kind):
    assert kind.accepts(kind.api) and kind.accepts(kind.first_api)
    assert not kind.accepts(kind.api + 1) and not kind.accepts(kind.first_api - 1)


@of_every_kind
def test_the_list_of_kinds_says_what_the_object_says(kind):
    row = re.search(
        rf"^\| \[\w+\]\(\w+\.md\) \| `{re.escape(kind.group)}` \| (\d+) \| (\w+) \| (.+?) \|$", README, re.M
    )
    assert row is not None and row.groups() == (str(kind.api), kind.tier, kind.summary)


def test_an_integer_window_is_the_one_before_or_what_the_kind_says():
    assert [Kind(group="a.b", label="x", api=api).first_api for api in (1, 2, 5)] == [1, 1, 4]
    assert Kind(group="a.b", label="x", api=5, oldest=2).first_api == 2
    assert not Kind(group="a.b", label="x", api=2, oldest=2).accepts(1)


def test_a_definition_imports_neither_descriptors_nor_protocols():
    code = "import sys; from core.api import Contract, Kind; print(sorted(n for n in sys.modules if n[:5] == 'core.'))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['core.api', 'core.api.kinds', 'core.version']"
