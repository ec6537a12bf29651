"""Which chat template a conversation is written with."""

from __future__ import annotations

import json
import os
from types import SimpleNamespace

import pytest

from core.api.errors import CheckpointError, ConfigError, RequestError
from core.api.sampling_params import SamplingParams
from core.frontend import templates
from core_tokenizers.fast import FastTokenizer

os.environ.setdefault("USE_TORCH", "0")  # the reference needs none, and importing it is slow

ONE = SamplingParams(max_tokens=1)
USER = [{"role": "user", "content": "hi"}]
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]
NAMED = {
    "default": "plain:{{ messages[0].content }}",
    "tool_use": "tools:{{ tools[0].function.name }}{{ mood }}",
    "rag": "rag:{{ documents[0].text }}",
}


class Family:
    """What a model's plugin knows."""

    names = ("square", "round")

    def source(self, name):
        return f"{name}:{{{{ messages[0].content }}}}"

    def suited(self, config, tokens):
        return "round" if "<|im_start|>" in tokens else None


@pytest.fixture
def family(monkeypatch):
    monkeypatch.setattr(templates, "_family", lambda config: Family())


@pytest.fixture
def saved(tokenizer, tmp_path):
    """Return a maker of tokenizers read from files with this `chat_template`."""

    def make(given=None, **files):
        tokenizer._backend.save(str(tmp_path / "tokenizer.json"))
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": given, "eos_token": "</s>"}))
        for name, text in files.items():
            file = tmp_path / name.replace("__", "/")
            file.parent.mkdir(exist_ok=True)
            file.with_suffix(".jinja").write_text(text)
        return FastTokenizer.from_directory(tmp_path)

    return make


def listed(**named):
    return [{"name": name, "template": source} for name, source in named.items()]


def said(llm, **named):
    return llm.chat(USER, ONE, **named)[0].prompt


@pytest.mark.covers("REND-07")
def test_named_templates_are_chosen_as_transformers_does(offline, saved, tmp_path):
    tokenizer = saved(listed(**NAMED))
    llm, _ = offline(with_tokenizer=tokenizer)
    assert said(llm) == "plain:hi"
    assert said(llm, tools=TOOLS) == "tools:add"
    assert said(llm, tools=TOOLS, tool_choice="none") == "plain:hi"
    assert said(llm, chat_template="rag", documents=[{"text": "page"}]) == "rag:page"
    assert said(llm, chat_template="own:{{ messages[0].role }}") == "own:user"
    assert llm.model.template_names == {"default", "tool_use", "rag"}
    assert llm.model.template_variables == {"messages", "tools", "mood"}

    from transformers import PreTrainedTokenizerFast

    theirs = PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    theirs.chat_template = NAMED
    for named in ({}, {"tools": TOOLS}, {"chat_template": "rag", "documents": [{"text": "page"}]}):
        assert theirs.apply_chat_template(USER, tokenize=False, **named) == said(llm, **named)


def test_files_of_templates_go_before_the_configuration(saved):
    found = saved(listed(**NAMED), chat_template="file", additional_chat_templates__rag="rag file")
    assert (found.chat_template, found.chat_templates) == (
        "file",
        {"rag": "rag file", "tool_use": NAMED["tool_use"]},
    )
    broken = saved([{"name": "x"}, 3, {"name": 1, "template": "t"}])
    assert broken.chat_templates["rag"] == "rag file"


def test_a_file_that_is_no_text(saved, tmp_path):
    (tmp_path / "chat_template.jinja").write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(CheckpointError, match="CORE-M111"):
        saved()


def test_templates_for_special_purposes_only(offline, saved):
    llm, _ = offline(with_tokenizer=saved(listed(tool_use=NAMED["tool_use"])))
    assert said(llm, tools=TOOLS) == "tools:add" and llm.model.has_chat_template
    with pytest.raises(RequestError, match="tool_use with chat_template") as caught:
        said(llm)
    assert caught.value.code == "no_chat_template"


@pytest.mark.covers("REND-07")
def test_the_flag_takes_a_file_a_name_or_jinja(offline, saved, family, tmp_path):
    tokenizer = saved(listed(**NAMED))
    file = tmp_path / "mine.txt"
    file.write_text("mine:{{ messages[0].content }}")
    for given, expected in (
        (str(file), "mine:hi"),
        ("rag", "rag:page"),
        ("square", "square:hi"),
        ("typed {{ messages[0].content }}", "typed hi"),
    ):
        llm, _ = offline(with_tokenizer=tokenizer, model={"chat_template": given})
        assert said(llm, documents=[{"text": "page"}], tools=TOOLS) == expected
        assert llm.model.template_names == {"default"}
    for wrong in ("oval", "x" * 5000, "a\0b"):
        with pytest.raises(ConfigError, match="CORE-C121"):
            offline(with_tokenizer=tokenizer, model={"chat_template": wrong})
    with pytest.raises(ConfigError, match="default, rag, tool_use, round, square"):
        offline(with_tokenizer=tokenizer, model={"chat_template": "oval"})


@pytest.mark.covers("REND-07")
def test_a_checkpoint_without_one_gets_what_its_plugin_takes_for_it(offline, saved, family, caplog):
    llm, _ = offline(with_tokenizer=saved())
    assert said(llm) == "round:hi"  # its vocabulary has <|im_start|>
    assert "'round'" in caplog.text and "--chat-template" in caplog.text


def test_where_nothing_can_be_told_the_request_is_refused(offline, saved, family, monkeypatch):
    monkeypatch.setattr(Family, "suited", lambda self, config, tokens: None)
    llm, _ = offline(with_tokenizer=saved())
    with pytest.raises(RequestError) as caught:
        said(llm)
    assert (caught.value.code, caught.value.param) == ("no_chat_template", "messages")
    assert "--chat-template" in caught.value.message and "round, square" in caught.value.message
    assert said(llm, chat_template="{{ messages[0].content }}") == "hi"


def test_the_plan_names_the_plugin(tiny_plan):
    assert templates._family(tiny_plan("llama")).source("chatml").count("<|im_start|>") == 2
    assert templates._family(tiny_plan("bert")) is None
    assert "chatml" in templates.known_names(tiny_plan("llama"))


@pytest.fixture
def tiny_plan():
    """Return a maker of configurations whose plan has this model plugin."""
    from core.plugins.catalog import Catalogue
    from core.plugins.kinds import KINDS
    from core.plugins.plan import PlannedPlugin, PluginPlan

    def make(name):
        entry = next(one for one in Catalogue.scan().entries("core.models") if one.name == name)
        fields = {key: getattr(entry, key) for key in ("group", "name", "value", "dist", "version")}
        return SimpleNamespace(plan=PluginPlan(drivers=(PlannedPlugin(**fields, api=KINDS[entry.group].api),)))

    return make
