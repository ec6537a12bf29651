"""The family's chat format, for checkpoints without a template."""

from __future__ import annotations

import pytest
from core_plugin_gemma.chat import Templates

from core.tokenizer.chat_template import ChatTemplate

TALK = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": " Hi "},
    {"role": "assistant", "content": "Yes?"},
    {"role": "user", "content": "Bye"},
]


@pytest.mark.covers("REND-07")
def test_the_system_message_begins_the_first_turn():
    template = ChatTemplate(Templates.source("gemma"), {"bos_token": "<bos>"})
    assert template.render(TALK) == (
        "<bos><start_of_turn>user\nBe kind.\n\nHi<end_of_turn>\n<start_of_turn>model\nYes?<end_of_turn>\n"
        "<start_of_turn>user\nBye<end_of_turn>\n<start_of_turn>model\n"
    )
    assert template.render(TALK[3:], add_generation_prompt=False) == "<bos><start_of_turn>user\nBye<end_of_turn>\n"


@pytest.mark.parametrize(
    ("tokens", "name"),
    [({"<start_of_turn>", "<end_of_turn>", "<pad>"}, "gemma"), ({"<start_of_turn>"}, None), (set(), None)],
)
def test_the_vocabulary_tells_the_format(tokens, name):
    assert Templates.suited({"model_type": "gemma3_text"}, frozenset(tokens)) == name
