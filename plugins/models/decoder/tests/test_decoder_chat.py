"""The chat templates that come with families of decoders: every format as its models were trained to read it."""

from __future__ import annotations

import os

import pytest
from core_plugin_decoder.chat import NAMES, Templates

from core_testing.templates import CompiledTemplate

os.environ.setdefault("USE_TORCH", "0")  # the reference needs none, and importing it is slow

SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}
TALK = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Yes?"},
    {"role": "user", "content": "Bye"},
]
SAID = [(message["role"], message["content"]) for message in TALK]
BOTH = "A chat between a curious user and an artificial intelligence assistant. "
BOTH += "The assistant gives helpful, detailed, and polite answers to the user's questions. "
BELOW = "Below is an instruction that describes a task. Write a response that appropriately completes the request.\n\n"
TURN, END = "<|START_OF_TURN_TOKEN|>", "<|END_OF_TURN_TOKEN|>"


def heads(role):
    return f"<|start_header_id|>{role}<|end_header_id|>\n\n"


def role(name):
    return f"<|start_of_role|>{name}<|end_of_role|>"


FORMATS = {
    "alpaca": "<s>Be kind.\n\n### Instruction:\nHi\n\n### Response:\nYes?</s>\n\n"
    "### Instruction:\nBye\n\n### Response:\n",
    "chatml": "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nYes?"
    "<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n",
    "chatglm3": "[gMASK]sop<|system|>\n Be kind.<|user|>\n Hi<|assistant|>\n Yes?<|user|>\n Bye<|assistant|>",
    "chatglm4": "[gMASK]<sop><|system|>\nBe kind.<|user|>\nHi<|assistant|>\nYes?<|user|>\nBye<|assistant|>",
    "exaone": "[|system|]Be kind.[|endofturn|]\n[|user|]Hi\n[|assistant|]Yes?[|endofturn|]\n[|user|]Bye\n[|assistant|]",
    "falcon": "System: Be kind.\nUser: Hi\nFalcon: Yes?\nUser: Bye\nFalcon:",
    "granite": "".join(f"{role(name)}{text}</s>\n" for name, text in SAID) + role("assistant"),
    "orion": "<s>Human: Be kind.\n\nHi\n\nAssistant: </s>Yes?</s>Human: Bye\n\nAssistant: </s>",
    "seed": "".join(f"<seed:bos>{name}\n{text}<seed:eos>" for name, text in SAID) + "<seed:bos>assistant\n",
    "command-r": f"<s>{TURN}<|SYSTEM_TOKEN|>Be kind.{END}{TURN}<|USER_TOKEN|>Hi{END}{TURN}<|CHATBOT_TOKEN|>Yes?{END}"
    f"{TURN}<|USER_TOKEN|>Bye{END}{TURN}<|CHATBOT_TOKEN|>",
    "deepseek": "<s>Be kind.<｜User｜>Hi<｜Assistant｜>Yes?</s><｜User｜>Bye<｜Assistant｜>",
    "deepseek-llm": "<s>Be kind.\n\nUser: Hi\n\nAssistant: Yes?</s>User: Bye\n\nAssistant:",
    "gemma": "<s><start_of_turn>user\nBe kind.\n\nHi<end_of_turn>\n<start_of_turn>model\nYes?<end_of_turn>\n"
    "<start_of_turn>user\nBye<end_of_turn>\n<start_of_turn>model\n",
    "llama2": "<s>[INST] <<SYS>>\nBe kind.\n<</SYS>>\n\nHi [/INST] Yes? </s><s>[INST] Bye [/INST]",
    "llama3": f"<s>{heads('system')}Be kind.<|eot_id|>{heads('user')}Hi<|eot_id|>{heads('assistant')}Yes?<|eot_id|>"
    f"{heads('user')}Bye<|eot_id|>{heads('assistant')}",
    "mistral": "<s>[INST] Be kind.\n\nHi [/INST] Yes?</s>[INST] Bye [/INST]",
    "openchat": "<s>Be kind.<|end_of_turn|>GPT4 Correct User: Hi<|end_of_turn|>GPT4 Correct Assistant: Yes?"
    "<|end_of_turn|>GPT4 Correct User: Bye<|end_of_turn|>GPT4 Correct Assistant:",
    "phi3": "<|system|>\nBe kind.<|end|>\n<|user|>\nHi<|end|>\n<|assistant|>\nYes?<|end|>\n<|user|>\nBye<|end|>\n"
    "<|assistant|>\n",
    "vicuna": "<s>Be kind. USER: Hi ASSISTANT: Yes?</s>USER: Bye ASSISTANT:",
    "zephyr": "<|system|>\nBe kind.</s>\n<|user|>\nHi</s>\n<|assistant|>\nYes?</s>\n<|user|>\nBye</s>\n<|assistant|>\n",
}


@pytest.fixture(scope="module")
def reference():
    from transformers.utils.chat_template_utils import render_jinja_template

    def render(source, messages, **named):
        return render_jinja_template([messages], chat_template=source, **SPECIAL, **named)[0][0]

    return render


def test_every_format_is_known():
    assert set(NAMES) == set(FORMATS)


@pytest.mark.covers("REND-07")
@pytest.mark.parametrize("name", FORMATS)
def test_formats(reference, name):
    source = Templates.source(name)
    template = CompiledTemplate(source, SPECIAL)
    assert template.template.content_format == "string"
    assert template.render(TALK) == FORMATS[name] == reference(source, TALK, add_generation_prompt=True)
    for messages in (TALK[1:], TALK[1:3]):
        for prompt in (True, False):
            expected = reference(source, messages, add_generation_prompt=prompt)
            assert template.render(messages, add_generation_prompt=prompt) == expected
            if len(messages) == 2:  # one exchange has one beginning, in formats that have any
                assert expected.count("<s>") == FORMATS[name][:3].count("<s>")
    assert "Be kind" not in template.render(TALK[1:])
    continued = [*TALK[1:2], {"role": "assistant", "content": "Well"}]
    assert template.render(continued, add_generation_prompt=False, continue_final_message=True).endswith("Well")


def test_formats_with_words_of_their_own_without_a_system_message():
    assert CompiledTemplate(Templates.source("vicuna"), SPECIAL).render(TALK[1:2]) == f"<s>{BOTH}USER: Hi ASSISTANT:"
    said = CompiledTemplate(Templates.source("alpaca"), SPECIAL).render(TALK[1:2])
    assert said == f"<s>{BELOW}### Instruction:\nHi\n\n### Response:\n"


@pytest.mark.covers("REND-07")
@pytest.mark.parametrize(
    ("kind", "tokens", "name"),
    [
        ("llama", {"<s>", "</s>"}, None),
        ("llama", {"<|im_start|>", "<|im_end|>", "[INST]", "[/INST]"}, "chatml"),
        ("llama", {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|begin_of_text|>"}, "llama3"),
        ("llama", {"<start_of_turn>", "<end_of_turn>"}, "gemma"),
        ("llama", {"<｜User｜>", "<｜Assistant｜>"}, "deepseek"),
        ("llama", {"<|user|>", "<|assistant|>", "<|end|>"}, "phi3"),
        ("llama", {"<|user|>", "<|assistant|>"}, "zephyr"),
        ("mistral", {"[INST]", "[/INST]"}, "mistral"),
        ("mistral", set(), "mistral"),
        ("qwen2", set(), "chatml"),
        ("qwen3", set(), "chatml"),
        ("chatglm", {"[MASK]", "[gMASK]", "sop", "eop", "<|user|>", "<|assistant|>"}, "chatglm3"),
        ("glm", {"[gMASK]", "<sop>", "<|user|>", "<|assistant|>"}, "chatglm4"),
        ("granite", {"<|start_of_role|>", "<|end_of_role|>"}, "granite"),
        ("seed_oss", {"<seed:bos>", "<seed:eos>"}, "seed"),
        ("exaone", set(), "exaone"),
        ("qwen", set(), "chatml"),
        ("falcon", set(), None),
        (None, {"<|im_start|>"}, None),
    ],
)
def test_what_suits_a_checkpoint(kind, tokens, name):
    assert Templates.suited({"model_type": kind}, frozenset(tokens)) == name
