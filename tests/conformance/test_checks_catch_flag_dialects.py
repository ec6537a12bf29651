"""Each check of flag dialects finds the one that is wrong in its way, and none finds fault with a sound one."""

from __future__ import annotations

from string import Template

import pytest
from core_plugin_author import scaffold

from core_testing.conformance import Level

FOLDER = scaffold.files("core_plugin_author") / "templates" / "flag_dialects"
WORDS = {"name": "broken", "package": "PKG", "cls": "Broken", "constant": "SPEC", "summary": "s"}

CASES = {
    "cores_flags_pass_untouched": ("for word in words for", 'for word in words if word != "-1" for'),
    "unknown_words_are_left_alone": ("            return None", "            return []"),
    "samples_become_cores_flags": ('"max-model-len"', '"context-length"'),
    "refusals_say_why": (", hint=REFUSED[flag]", ""),
}
FURTHER = [
    ("cores_flags_pass_untouched", ("return NAMES.get(name)", 'return NAMES.get(name, "port")')),
    ("unknown_words_are_left_alone", ("self._meant(word) or (word,)", "self._meant(word) or ()")),
    ("samples_become_cores_flags", ('"pooling")', '"pooling", "--embed")')),
    ("refusals_say_why", ("raise ConfigError", "raise KeyError(flag)  # ")),
    ("refusals_say_why", ("if flag in REFUSED:", "if not flag:")),
]


@pytest.fixture
def dialect(make_plugin):
    def make(old: str = "", new: str = ""):
        sources = {
            name: Template((FOLDER / f"{name}.py.tmpl").read_text()).substitute(WORDS)
            for name in ("manifest", "dialect", "conformance")
        }
        assert old in sources["dialect"]
        sources["dialect"] = sources["dialect"].replace(old, new) if old else sources["dialect"]
        return make_plugin("core.flag_dialects", sources)

    return make


def test_the_sound_one_passes(dialect):
    assert dialect().failing("flag_dialects", level=Level.L1) == {}


@pytest.mark.parametrize(("check", "change"), [*CASES.items(), *FURTHER])
def test_a_fault_is_found_by_its_check(dialect, check, change):
    assert [one.check for one in dialect(*change).report(checks=(check,)).failures] == [check]
