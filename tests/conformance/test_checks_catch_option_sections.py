"""Each check of option sections finds the one that is wrong in its way, and none finds fault with a sound one."""

from __future__ import annotations

from importlib.resources import files
from string import Template

import pytest

from core_testing.conformance import Level

FOLDER = files("core_plugin_author") / "templates" / "option_sections"
WORDS = {"name": "broken", "plain": "broken", "package": "PKG", "cls": "Broken", "constant": "SPEC", "summary": "s"}
COUNT = '    broken_count: int = Field(3, ge=1, description="How often.")\n'
SWITCH = '    broken_loud: bool = Field(False, description="Whether it is loud.")\n'

CASES = {
    "section_is_usable": ("broken_greeting: str", "port: str"),
    "descriptions_are_sentences": ("What is said first.", "What is said first"),
    "defaults_are_plain_data": ("class BrokenOptions(BaseModel):", "class BrokenOptions(Odd):"),
    "secrets_are_marked": ("OptionMarks(secret=True)", "OptionMarks()"),
    "flag_and_variable_agree": ("class BrokenOptions(BaseModel):", "class BrokenOptions(Once):"),
}
FURTHER = [
    ("section_is_usable", ('description="Key of the service that is asked."', 'description=""')),
    ("section_is_usable", ("Annotated[str | None, OptionMarks(secret=True)]", "Annotated[set[str], OptionMarks()]")),
    ("descriptions_are_sentences", ("What is said first.", "What is said\\nfirst.")),
]

ODD = """
class Odd(BaseModel):
    def model_dump(self, **given):
        return {**super().model_dump(**given), "other": 1}


class Once(BaseModel):
    def model_dump(self, **given):
        Once.turn = getattr(Once, "turn", 0) + 1
        return {**super().model_dump(**given), "broken_count": Once.turn}


class BrokenOptions"""


@pytest.fixture
def section(make_plugin):
    def make(old: str = "", new: str = ""):
        files = {name: (FOLDER / f"{name}.py.tmpl").read_text() for name in ("manifest", "options")}
        sources = {name: Template(text).substitute(WORDS) for name, text in files.items()}
        source = sources["options"]
        place = source.index("    broken_greeting")
        source = source[:place] + COUNT + SWITCH + source[place:]
        assert old in source
        source = source.replace(old, new) if old else source
        sources["options"] = source.replace("class BrokenOptions", ODD.lstrip(), 1)
        return make_plugin("core.option_sections", sources)

    return make


def test_the_sound_one_passes(section):
    assert section().failing("option_sections", level=Level.L1) == {}


@pytest.mark.parametrize(("check", "change"), [*CASES.items(), *FURTHER])
def test_a_fault_is_found_by_its_check(section, check, change):
    assert [one.check for one in section(*change).report(checks=(check,)).failures] == [check]
