"""A stranger's template engine writes the prompts; without one nobody can chat, and completions work."""

from __future__ import annotations

import pytest

from core import LLM, SamplingParams
from core.api import CheckpointError, PluginError, RequestError
from core.config.resolved import Options
from core.frontend.templating import GROUP
from core.plugins.catalog import Catalogue
from core.selection.resolver import resolve

ONE = SamplingParams(max_tokens=1)
USER = [{"role": "user", "content": "a"}]
SMALL = {"dtype": "float32", "num_blocks": 40, "threads": 1}


def chosen(llama, **select):
    plan = resolve(Options.model_validate({"model": {"model": llama}, "select": select})).config.plan
    return [one.name for one in plan.of(GROUP)]


def test_the_best_is_chosen_unless_one_is_named(plugins, llama):
    assert chosen(llama) == ["jinja"]
    plugins("template_engine")
    assert chosen(llama) == chosen(llama, chat_template_engine="auto") == ["jinja"]
    assert chosen(llama, chat_template_engine="lines") == ["lines"]
    assert chosen(llama, chat_template_engine="none") == []
    with pytest.raises(PluginError, match="CORE-P101"):
        chosen(llama, chat_template_engine="nobody")


def test_conversations_are_written_by_it(plugins, llama, tmp_path):
    plugins("template_engine")
    named = {"chat_template_engine": "lines", **SMALL}
    with LLM(llama, chat_template="%say", default_chat_template_kwargs={"mood": "softly "}, **named) as llm:
        assert llm.chat(USER, ONE)[0].prompt == "say softly a\n"
        assert llm.chat(USER, ONE, mood="loudly ")[0].prompt == "say loudly a\n"
        assert llm.chat(USER, ONE, chat_template="%tell")[0].prompt == "tell softly a\n"
        assert llm.model.template_variables == {"messages", "mood"}
        with pytest.raises(RequestError, match="a word has no blanks") as caught:
            llm.chat(USER, ONE, chat_template="%a b")
        assert caught.value.param == "chat_template"
        for word, said in (("CHOOSY", "not in this mood"), ("STRICT", "no tools here")):
            with pytest.raises(RequestError, match=said):
                llm.chat(USER, ONE, chat_template=f"%{word}")
        for word, said in (("FAILING", r"'lines' \(seam-templates 1.0\).*KeyError"), ("BROKEN", "no compiler today")):
            with pytest.raises(PluginError, match=rf"CORE-P108.*{said}"):
                llm.chat(USER, ONE, chat_template=f"%{word}")
        with pytest.raises(PluginError, match=r"CORE-P160.*does not fit ChatTemplate"):
            llm.chat(USER, ONE, chat_template="%ODD")
    (tmp_path / "mine").write_text("two words")
    with pytest.raises(CheckpointError, match=r"CORE-M112.*a word has no blanks"):
        LLM(llama, chat_template=str(tmp_path / "mine"), **named)


@pytest.mark.parametrize("installed", [True, False])
def test_without_one_completions_work_and_conversations_are_refused(llama, installed, monkeypatch):
    if not installed:
        entries = Catalogue.entries
        monkeypatch.setattr(Catalogue, "entries", lambda self, group: [] if group == GROUP else entries(self, group))
    with LLM(llama, **({"chat_template_engine": "none"} if installed else {}), **SMALL) as llm:
        assert llm.generate(["a"], ONE)[0].outputs
        assert not llm.model.has_chat_template
        for named in ({}, {"chat_template": "{{ messages[0].content }}"}):
            with pytest.raises(RequestError) as caught:
                llm.chat(USER, ONE, **named)
            assert (caught.value.param, caught.value.code) == ("messages", "no_chat_template")
            said = "--chat-template-engine none" if installed else "pip install core-plugin-jinja"
            assert said in caught.value.message
