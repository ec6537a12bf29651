"""The family's chat format, for checkpoints without a template."""

from __future__ import annotations

import pytest
from core_plugin_gemma.chat import Templates

from core_testing.templates import CompiledTemplate

TALK = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": " Hi "},
    {"role": "assistant", "content": "Yes?"},
    {"role": "user", "content": "Bye"},
]


@pytest.mark.covers("REND-07")
def test_the_system_message_begins_the_first_turn():
    template = CompiledTemplate(Templates.source("gemma"), {"bos_token": "<bos>"})
    assert template.render(TALK) == (
        "<bos><start_of_turn>user\nBe kind.\n\nHi<end_of_turn>\n<start_of_turn>model\nYes?<end_of_turn>\n"
        "<start_of_turn>user\nBye<end_of_turn>\n<start_of_turn>model\n"
    )
    assert template.render(TALK[3:], add_generation_prompt=False) == "<bos><start_of_turn>user\nBye<end_of_turn>\n"


@pytest.mark.covers("REND-07")
def test_the_fourth_has_turns_of_its_own():
    template = CompiledTemplate(Templates.source("gemma4"), {"bos_token": "<bos>"})
    talk = [*TALK[:2], {"role": "assistant", "content": "<|channel>thought\nHm<channel|>Yes? "}, TALK[3]]
    system, rest = (
        "<|turn>system\n{}Be kind.<turn|>\n",
        "<|turn>user\nHi<turn|>\n<|turn>model\nYes?<turn|>\n<|turn>user\nBye<turn|>\n",
    )
    assert template.render(talk) == f"<bos>{system.format('')}{rest}<|turn>model\n"
    assert template.render(talk, add_generation_prompt=False) == f"<bos>{system.format('')}{rest}"
    begun = f"<bos>{system.format('<|think|>')}".replace("<|think|>", "<|think|>\n")
    assert template.render(talk, enable_thinking=True) == f"{begun}{rest}<|turn>model\n"
    closed = CompiledTemplate(Templates.source("gemma4-closed"), {"bos_token": "<bos>"})
    last = "<bos><|turn>user\nBye<turn|>\n"
    assert closed.render(TALK[3:]) == f"{last}<|turn>model\n<|channel>thought\n<channel|>"
    thinking = closed.render(TALK[3:], enable_thinking=True)
    assert thinking == "<bos><|turn>system\n<|think|>\n<turn|>\n" + last.removeprefix("<bos>") + "<|turn>model\n"
    assert closed.render(TALK[3:], add_generation_prompt=False) == last


@pytest.mark.parametrize("size", [0, 256])
def test_an_empty_thought_is_for_models_without_inputs_of_layers(size):
    config = {"model_type": "gemma4_text", "hidden_size_per_layer_input": size}
    assert Templates.suited(config, frozenset({"<|turn>", "<turn|>"})) == ("gemma4" if size else "gemma4-closed")


@pytest.mark.parametrize(
    ("tokens", "name"),
    [({"<start_of_turn>", "<end_of_turn>", "<pad>"}, "gemma"), ({"<start_of_turn>"}, None), (set(), None)],
)
def test_the_vocabulary_tells_the_format(tokens, name):
    assert Templates.suited({"model_type": "gemma3_text"}, frozenset(tokens)) == name
