"""A kind that a plugin defines is a kind like core's: every command, option and check knows it."""

from __future__ import annotations

import json
import shutil
import tomllib
from pathlib import Path

import pytest

from core.api.errors import CoreError, PluginError
from core.cli.completers import plugin_names
from core.config.fields import fields_by_path, option_fields
from core.config.flags import add_option_flags, to_argv
from core.config.load import load_options
from core.config.parser import CoreParser
from core.config.resolved import Options, SelectOptions
from core.plugins.active import enter
from core.plugins.catalog import Catalogue
from core.plugins.defined import defined, defined_kinds
from core.plugins.kinds import KINDS, every_kind, kind_chosen_by, kind_of
from core.selection.resolver import resolve
from core_testing.conformance import Level, run

EXAMPLES = Path(__file__).parents[3] / "examples" / "plugins"
GROUP = "acme.moderators"

KIND = """
from core.api import Contract, Kind

MINE = Kind(group={group!r}, label="thing", descriptor={descriptor!r}, option={option!r}, {more})
"""


def install(site, *folders):
    """Install examples from their sources."""
    for folder in folders:
        project = tomllib.loads((EXAMPLES / folder / "pyproject.toml").read_text())["project"]
        shutil.copytree(EXAMPLES / folder / "src", site.root, dirs_exist_ok=True)
        site.install(project["name"], project["entry-points"], version=project["version"])


@pytest.fixture
def both(site):
    """The distribution that defines moderators, and one with a moderator."""
    install(site, "moderation", "word_list")
    site.only()
    return site


@pytest.fixture
def moderator(both):
    """`moderator(dist, source)`: install another moderator, `odd`, whose implementation is this."""

    def make(source, *, dist="acme-odd", name="odd"):
        package = dist.replace("-", "_")
        manifest = (
            "from acme_core_moderation.spec import ModeratorSpec\n"
            f"ODD = ModeratorSpec(name={name!r}, impl='{package}_impl:Odd', api=1, summary='', categories=('odd',))\n"
        )
        modules = {f"{package}_manifest": manifest, f"{package}_impl": source}
        both.install(dist, {GROUP: {name: f"{package}_manifest:ODD"}}, modules)

    return make


def options(*words, **environ):
    parser = CoreParser(prog="core serve")
    add_option_flags(parser, positional_model=True)
    return load_options(parser.parse_args(list(words)), environ).options


def plan(site, *words, **environ):
    return resolve(options("--plugin-file", str(site.world()), *words, **environ)).config.plan


def test_it_is_known_by_group_label_and_option(both):
    assert set(every_kind()) - set(KINDS) == {GROUP} and defined().faults == ()
    assert kind_of(GROUP).label == "moderator" and kind_chosen_by("moderator") is kind_of(GROUP)
    assert "select.moderator" in fields_by_path() and option_fields()


def test_without_the_plugin_there_is_neither_kind_nor_option(site):
    assert defined_kinds() == {} and "select.moderator" not in fields_by_path()
    with pytest.raises(CoreError, match="unknown flag --moderator"):
        options("--moderator", "words")


def test_flag_variable_and_file_choose(both, tmp_path):
    (tmp_path / "core.toml").write_text('[select]\nmoderator = ["words"]\n')
    for words, environ in (
        (["--moderator", "words"], {}),
        ([], {"CORE_MODERATOR": "words@acme-core-words"}),
        (["--config", str(tmp_path / "core.toml")], {}),
    ):
        (one,) = plan(both, *words, **environ).of(GROUP)
        assert (one.name, one.dist, one.api) == ("words", "acme-core-words", 1)
    assert plan(both).of(GROUP) == []


def test_options_travel_as_json_and_as_flags(both):
    given = options("--moderator", "words", "--moderator", "other")
    again = Options.model_validate_json(given.model_dump_json())
    assert again == given and again.select.moderator == ["words", "other"]
    assert to_argv(given) == ["--moderator=words,other"]
    assert SelectOptions().moderator == []
    with pytest.raises(ValueError, match="'moderator' takes names"):
        SelectOptions(moderator="words")
    with pytest.raises(ValueError, match="there is no option 'moderators'"):
        SelectOptions(moderators=["words"])
    with pytest.raises(AttributeError):
        _ = SelectOptions().nothing


def test_a_value_of_another_type_is_refused_with_its_place(both, tmp_path):
    (tmp_path / "core.toml").write_text("[select]\nmoderator = 5\n")
    with pytest.raises(CoreError, match=r"key select.moderator of .*: 5 is not allowed; allowed: plugins' names"):
        options("--config", str(tmp_path / "core.toml"))


def test_objects_are_bound_with_their_options_once(both):
    words = ["--moderator", "words", "--opt", 'words.words=["heist"]']
    active = enter(plan(both, *words))
    (one,) = active.chosen(kind_of(GROUP))
    assert one.name == "words" and one.value.look("a heist") == {"word-list": 1.0}
    assert one.spec.categories == ("word-list",) and active.chosen(kind_of(GROUP))[0].value is one.value
    with pytest.raises(PluginError, match="CORE-P132 plugins of the kind scheduling policy"):
        active.chosen(KINDS["core.schedulers"])
    with pytest.raises(CoreError, match="CORE-C111"):
        plan(both, *words[:2], "--opt", "words.words=5")


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("pass", "it lacks look(text)"),
        ("def look(self): ...", "look(text) is called, but its signature is look()"),
        ("def look(self, text): ...\n    def explain(self): ...", "explain(category) is called"),
        ("def look(self, text): ...\n    def explains(self, c): ...", "nearly explain()"),
    ],
)
def test_a_broken_one_is_held_against_the_protocol(moderator, both, core, body, told):
    moderator(f"class Odd:\n    {body}\n")
    with pytest.raises(PluginError) as caught:
        enter(plan(both, "--moderator", "odd")).chosen(kind_of(GROUP))
    assert caught.value.code == "CORE-P160" and told in caught.value.message
    assert "moderator 'odd' (acme-odd 1.0)" in caught.value.message
    status, out, _ = core("plugins", "doctor", "acme.moderators:odd")
    assert status == 1 and "CORE-P160" in out and told in out


def test_wrong_names_and_twins_are_errors_as_of_every_kind(moderator, both):
    moderator("class Odd: ...", dist="acme-twin", name="words")
    with pytest.raises(CoreError, match="no moderator named 'wrods'") as caught:
        plan(both, "--moderator", "wrods")
    assert caught.value.code == "CORE-P101" and "Did you mean 'words'?" in caught.value.hint
    with pytest.raises(CoreError, match="2 distributions provide moderator 'words'") as caught:
        plan(both, "--moderator", "words")
    assert caught.value.code == "CORE-P102" and "--moderator words@acme-twin" in caught.value.hint
    assert plan(both, "--moderator", "words@acme-core-words", "--plugins", "none").of(GROUP)


def test_disabled_is_disabled(both):
    with pytest.raises(CoreError, match="disabled by 'words'"):
        plan(both, "--moderator", "words", "--disable-plugin", "words")
    with pytest.raises(CoreError, match=r"kind of plugin 'acme.moderators' .* it is disabled"):
        plan(both, "--moderator", "words", "--disable-plugin", "acme-core-moderation")


def test_list_info_and_api_show_it(both, core):
    _, out, _ = core("plugins", "list")
    assert "moderator       words            acme-core-words" in out and "ok" in out
    assert "kind of plugin  acme.moderators  acme-core-moderation" in out
    rows = json.loads(core("plugins", "list", "--kind", "moderator", "--json")[1])
    assert [(row["kind"], row["name"], row["state"]) for row in rows] == [("moderator", "words", "ok")]
    _, out, _ = core("plugins", "info", "words")
    assert "categories" in out and "word-list" in out and "option words" in out
    _, out, _ = core("plugins", "info", GROUP)
    assert "acme_core_moderation.spec:ModeratorSpec" in out and "--moderator" in out
    rows = {row["group"]: row for row in json.loads(core("plugins", "api", "--json")[1])}
    assert rows[GROUP]["option"] == "--moderator" and rows[GROUP]["tier"] == "provisional"
    assert plugin_names(GROUP) == ["words"]


def test_why_config_and_help_tell_of_it(both, core):
    world = ["--plugin-file", both.world()]
    _, out, _ = core("plugins", "why", *world, "--moderator", "words")
    assert "moderator: as asked" in out and "acme-core-words" in out
    _, out, _ = core("config", "explain", "moderator")
    assert "--moderator" in out and "CORE_MODERATOR" in out and "words (acme-core-words 1.0.0)" in out
    _, out, _ = core("config", "show", "--resolved", *world, "--moderator", "words")
    assert any(line.split()[:2] == ["select.moderator", "['words']"] for line in out.splitlines())
    assert "--moderator NAME[,NAME]" in core("serve", "--help=select")[1]
    assert "--opt words.words=VALUE" in core("serve", "--help=plugins")[1]


def test_locks_name_it(both, core, tmp_path):
    world = ["--plugin-file", both.world()]
    lock = tmp_path / "core.lock"
    status, out, _ = core("plugins", "lock", lock, *world, "--moderator", "words")
    assert status == 0 and "moderator" in out and "words (acme-core-words 1.0.0)" in out
    assert core("plugins", "verify", lock, "--strict")[0] == 0
    with pytest.raises(CoreError, match=r"moderator 'words' of acme-core-words 1\.0\.0 takes no part"):
        plan(both, "--plugins-lock", str(lock), "--strict")


def test_it_can_be_disabled_in_a_file_and_made_anew(both, core, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "(acme.moderators:words)" in core("plugins", "disable", "acme.moderators:words")[1]
    assert "is enabled" in core("plugins", "enable", "acme.moderators:words")[1]
    status, out, _ = core("plugins", "new", "moderators", "strict", "--dir", tmp_path)
    assert status == 1 or "moderator.py" in out
    status, out, _ = core("plugins", "new", "moderator", "strict", "--dir", tmp_path)
    assert status == 0 and "core_plugin_strict/moderator.py" in out


@pytest.mark.parametrize(("name", "plugins"), [(GROUP, 1), ("words", 1), ("moderation", 2)])
def test_doctor_finds_nothing_wrong_with_the_examples(both, core, name, plugins):
    assert core("plugins", "doctor", name)[:2] == (0, f"{plugins} plugins: 0 errors, 0 warnings, 0 notes\n")


def test_without_the_definition_doctor_says_what_is_missing(site, core):
    install(site, "word_list")
    metadata = next(site.root.glob("acme_core_words-*/METADATA"))
    metadata.write_text(metadata.read_text() + "Requires-Dist: core>=0.1\n")
    site.only()
    _, out, _ = core("plugins", "doctor")
    assert "note: CORE-P127 acme.moderators:words (acme-core-words 1.0.0)" in out
    assert "nothing installed defines the kind acme.moderators" in out


# -- definitions that cannot be ----------------------------------------------------------------------------------------


@pytest.fixture
def definition(site):
    """`definition(...)`: install a distribution that defines a kind; return what is made of it."""

    def make(group="acme.things", dist="acme", *, point=None, **fields):
        wanted = {"descriptor": "acme_kind:Spec", "option": "thing", "more": "", **fields}
        package = f"{dist}_kind"
        site.install(
            dist, {"core.kinds": {point or group: f"{package}:MINE"}}, {package: KIND.format(group=group, **wanted)}
        )
        return defined()

    return make


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"group": "core.things"}, "groups that begin with core. are core's"),
        ({"group": "core.routes"}, "groups that begin with core. are core's"),
        ({"point": "acme.others"}, "its kind defines 'acme.things', its entry point is named 'acme.others'"),
        ({"option": "port"}, "there is an option 'port' already"),
        ({"option": "weight_loader"}, "there is an option 'weight_loader' already"),
        ({"option": "no-thing"}, "'no-thing' cannot be an option"),
        ({"descriptor": ""}, "it names no descriptor"),
        ({"more": "tier='stable'"}, "kinds of plugins are provisional"),
        ({"more": "also=('other',)"}, "further options are core's alone"),
    ],
)
def test_what_is_wrong_with_a_definition_is_told(definition, site, core, fields, told):
    found = definition(**fields)
    assert dict(found.kinds) == {} and found.faults[0].code == "CORE-P132" and told in found.faults[0].reason
    site.only()
    assert "CORE-P132" in core("plugins", "list", "--kind", "core.kinds")[1]
    status, out, _ = core("plugins", "doctor")
    assert status == 1 and told in out
    site.dists.clear()
    resolution = resolve(options("--plugin-file", str(site.world())))
    assert any(told in problem.message for problem in resolution.warnings)


def test_what_is_no_kind_and_what_cannot_be_imported_are_faults(site):
    site.install(
        "acme", {"core.kinds": {"a.b": "acme_kinds:NUMBER", "a.c": "acme_nothing:X"}}, {"acme_kinds": "NUMBER = 5"}
    )
    first, second = defined().faults
    assert (first.code, second.code) == ("CORE-P132", "CORE-P103") and "is a int, not a core.api.Kind" in first.reason


def test_two_definitions_of_one_group_stop_the_start_with_both_names(definition, site, core):
    definition(dist="acme")
    definition(dist="bolt")
    with pytest.raises(PluginError) as caught:
        resolve(options("--plugin-file", str(site.world())))
    assert caught.value.code == "CORE-P102" and "acme 1.0 and bolt 1.0" in caught.value.message
    site.only()
    status, out, _ = core("plugins", "doctor")
    assert status == 1 and "CORE-P102" in out


def test_a_descriptor_that_cannot_be_imported_fails_its_plugins(definition, site, core):
    definition(descriptor="acme_missing:Spec")
    site.install("bolt", {"acme.things": {"one": "bolt_manifest:ONE"}}, {"bolt_manifest": "ONE = 5"})
    site.only()
    _, out, _ = core("plugins", "list", "--kind", "thing")
    assert "CORE-P132" in out and "acme_missing" in out
    status, out, _ = core("plugins", "doctor", "acme.things")
    assert status == 1 and "acme_missing:Spec cannot be imported" in out


THINGS = """
from typing import ClassVar
from core.api import Descriptor

class Spec(Descriptor):
    group: ClassVar[str] = "acme.things"

LOW = Spec(name="low", impl="x:X", api=1, summary="", priority=10)
HIGH = Spec(name="high", impl="x:X", api=1, summary="", priority=90)
OLD = Spec(name="old", impl="x:X", api=2, summary="")
"""


@pytest.fixture
def things(definition, site):
    """A kind of which one is chosen, with three plugins."""

    def make(more=""):
        definition(descriptor="acme_things:Spec", more=more)
        points = {name: f"acme_things:{name.upper()}" for name in ("low", "high", "old")}
        site.install("bolt", {"acme.things": points}, {"acme_things": THINGS})
        site.only()
        return lambda *words: [one.name for one in plan(site, *words).of("acme.things")]

    return make


def test_a_kind_that_every_start_needs_is_chosen_by_score(things):
    chosen = things("needed=True")
    assert chosen() == chosen("--thing", "auto") == ["high"]
    assert chosen("--thing", "low") == ["low"] and chosen("--thing", "none") == []


def test_of_one_choice_a_list_is_an_order_of_preference(things):
    chosen = things()
    assert chosen() == [] and chosen("--thing", "old,low,high") == ["low"]
    with pytest.raises(CoreError, match=r"CORE-P104 thing 'old' .*API 2; acme.things offers 1"):
        chosen("--thing", "old")


# -- the kit -----------------------------------------------------------------------------------------------------------


def kit(selector, **given):
    report = run(selector, level=Level.L1, **given)
    return {outcome.check: (outcome.status, outcome.message) for one in report.plugins for outcome in one.outcomes}


def test_the_kit_runs_the_checks_of_the_kind(both, moderator):
    found = kit(
        "words", checks=("scores_are_of_its_categories", "threads_do_not_disturb_each_other", "api_is_in_the_window")
    )
    assert {status for status, _ in found.values()} == {"passed"} and len(found) == 3
    moderator("class Odd:\n    def look(self, text):\n        return {'other': 2.0}\n")
    status, message = kit("odd", checks=("scores_are_of_its_categories",))["scores_are_of_its_categories"]
    assert status == "failed" and "look('') names other" in message


def test_the_kit_looks_at_the_definition(both):
    found = kit(GROUP, checks=("definition_is_whole", "templates_can_be_filled_in"))
    assert found == dict.fromkeys(found, ("passed", "")) and len(found) == 2
    assert Catalogue.scan().entries("core.kinds")
