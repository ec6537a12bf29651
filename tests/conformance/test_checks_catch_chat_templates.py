"""Each check of template engines finds the one that is wrong in its way, and none finds fault with a sound one."""

from __future__ import annotations

from string import Template

import pytest
from core_plugin_author import scaffold

from core_testing.conformance import Level

FOLDER = scaffold.files("core_plugin_author") / "templates" / "chat_templates"
WORDS = {"name": "broken", "package": "PKG", "cls": "Broken", "constant": "SPEC", "summary": "s"}
SLOW = """        end, found = time.thread_time() + chat.seconds, []
        while "{slow}" in self._after{until}:
            pass
"""
TIMED = SLOW.replace("{until}", " and time.thread_time() < end")

CASES = {
    "samples_are_rendered": (
        'self._filled(self._before, "assistant", chat)',
        'self._filled(self._before, "Assistant", chat)',
    ),
    "refusals_are_request_errors": (
        'raise RequestError("this chat template shows texts only", param="messages") from None',
        "raise KeyError(message) from None",
    ),
    "rendering_ends_at_its_limit": (TIMED, SLOW.replace("{until}", " and time.thread_time() < end + 3")),
    "same_conversation_same_text": (
        'text = self._filled(self._before, message["role"], chat) + self._said(_text(message))',
        "self.last = message; time.sleep(0.001); "
        'text = self._filled(self._before, message["role"], chat) + self._said(_text(self.last))',
    ),
    "what_requests_say_stays_text": ('rf"\\g<0>{CUT}"', 'r"\\g<0>"'),
}


@pytest.fixture
def engine(make_plugin):
    def make(old: str = "", new: str = "", *, samples: bool = True):
        sources = {
            file: Template((FOLDER / f"{file}.py.tmpl").read_text()).safe_substitute(WORDS)
            for file in ("manifest", "engine", *(["conformance"] if samples else []))
        }
        begins = "        end, found = time.thread_time() + chat.seconds, []\n"
        assert begins in sources["engine"]
        sources["engine"] = sources["engine"].replace(begins, TIMED)
        if samples:
            broken = 'broken=["", "<|{role}|>", "{content}{content}"],'
            assert broken in sources["conformance"]
            sources["conformance"] = sources["conformance"].replace(broken, f'{broken} slow="{{content}}{{slow}}",')
        assert old in sources["engine"]
        sources["engine"] = sources["engine"].replace(old, new)
        return make_plugin("core.chat_templates", sources)

    return make


def test_a_sound_one_passes(engine):
    report = engine().report("chat_templates", "spawn")
    assert (report.failures, report.level) == ([], Level.L1)


@pytest.mark.parametrize("check", CASES)
def test_template_engines(engine, check):
    assert set(engine(*CASES[check]).failing("chat_templates")) == {check}


@pytest.mark.parametrize(
    ("old", "new", "check", "said"),
    [
        ("return pieces", "return ''.join(pieces)", "samples_are_rendered", "no list of texts"),
        ("NAME.findall(", "set(", "samples_are_rendered", "variables lack ['mood']"),
        ("> self._max_chars", "< 0", "refusals_are_request_errors", "it takes too long a prompt"),
        ("source.count(CONTENT) != 1", "CONTENT not in source", "refusals_are_request_errors", "which is no template"),
        ("raise ValueError(", "raise KeyError(", "refusals_are_request_errors", "KeyError"),
    ],
)
def test_what_fails_says_why(engine, old, new, check, said):
    assert said in engine(old, new).failing("chat_templates")[check]


def test_without_samples_nothing_can_be_said(engine):
    report = engine(samples=False).report("chat_templates")
    assert "it ships no TemplateSample" in {one.because for one in report.not_run}.pop()
