"""Each check of kinds that plugins define finds the definition that is wrong in its way."""

from __future__ import annotations

import pytest

KINDS = """
from core.api import Contract, Kind

SPEC = Kind(
    group="acme.things",
    label="thing",
    descriptor={descriptor!r},
    option="thing",
    contracts={{"{field}": Contract({protocol!r})}},
    template={template!r},
    checks={checks!r},
)
"""

CONTRACT = """
from typing import ClassVar, Protocol
from core.api import Descriptor

class ThingSpec(Descriptor):
    group: ClassVar[str] = "acme.things"

class OtherSpec(Descriptor):
    group: ClassVar[str] = "acme.others"

class Thing(Protocol):
    def do(self) -> None: ...

NUMBER = 5
"""

SOUND = {
    "descriptor": "PKG.contract:ThingSpec",
    "field": "impl",
    "protocol": "PKG.contract:Thing",
    "template": "PKG:templates",
    "checks": ("PKG.checks",),
}
ABOUT = 'summary = "Thing $name"\nuse = "core serve"\nabout = "A thing."\ndependencies = []\n'


@pytest.fixture
def definition(make_plugin):
    """`definition(...)`: a distribution that defines a kind, sound but for what is given; its template is one file."""

    def make(template_text="NAME = '$name'\n", *, name="acme.things", **changes):
        source = KINDS.format(**{**SOUND, **changes})
        made = make_plugin("core.kinds", {"manifest": source, "contract": CONTRACT, "checks": "CHECKS = ()"}, name=name)
        folder = made.site / made.package / "templates"
        folder.mkdir()
        (folder / "about.toml").write_text(ABOUT)
        (folder / "thing.py.tmpl").write_text(template_text)
        return made

    return make


def test_a_sound_definition_passes(definition):
    assert definition().failing("kinds", "packaging", "manifest") == {}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"name": "acme.others"}, "its kind defines 'acme.things', its entry point is named 'acme.others'"),
        ({"descriptor": "PKG.contract:OtherSpec"}, "has the group 'acme.others', not 'acme.things'"),
        ({"descriptor": "PKG.contract:Thing"}, "is no subclass of core.api.Descriptor"),
        ({"descriptor": "PKG.nowhere:Spec"}, "cannot be imported: ModuleNotFoundError"),
        ({"protocol": "PKG.contract:Nothing"}, "cannot be imported: AttributeError"),
        ({"protocol": "PKG.contract:NUMBER"}, "is no class"),
        ({"field": "worker_impl"}, "has no field worker_impl"),
        ({"template": "PKG:nowhere"}, "its templates lack"),
        ({"checks": ("PKG.nowhere.checks",)}, "nowhere.checks cannot be found"),
        ({"checks": ("routes",)}, "the checks of the kit in routes cannot be found"),
    ],
)
def test_definition_is_whole(definition, changes, told):
    assert told in definition(**changes).failing("kinds")["definition_is_whole"]


@pytest.mark.parametrize(("text", "told"), [("NAME = $nothing\n", "nothing"), ("NAME = = 5\n", "invalid syntax")])
def test_templates_can_be_filled_in(definition, text, told):
    found = definition(text).failing("kinds")
    assert list(found) == ["templates_can_be_filled_in"] and told in found["templates_can_be_filled_in"]
