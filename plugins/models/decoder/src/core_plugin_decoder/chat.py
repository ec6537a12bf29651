"""Chat templates for checkpoints that come without one: formats that decoders are trained with, for every family.

Each is a file in `templates`. Torch-free.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files

NAMES = (
    "alpaca",
    "chatglm3",
    "chatglm4",
    "chatml",
    "command-r",
    "deepseek",
    "deepseek-llm",
    "exaone",
    "falcon",
    "gemma",
    "granite",
    "llama2",
    "llama3",
    "mistral",
    "openchat",
    "orion",
    "phi3",
    "seed",
    "vicuna",
    "zephyr",
)

_BY_TOKENS: tuple[tuple[str, frozenset[str]], ...] = (
    ("chatml", frozenset({"<|im_start|>", "<|im_end|>"})),
    ("llama3", frozenset({"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"})),
    ("gemma", frozenset({"<start_of_turn>", "<end_of_turn>"})),
    ("chatglm3", frozenset({"[gMASK]", "sop"})),
    ("chatglm4", frozenset({"[gMASK]", "<sop>"})),
    ("granite", frozenset({"<|start_of_role|>", "<|end_of_role|>"})),
    ("seed", frozenset({"<seed:bos>", "<seed:eos>"})),
    ("command-r", frozenset({"<|START_OF_TURN_TOKEN|>", "<|END_OF_TURN_TOKEN|>", "<|CHATBOT_TOKEN|>"})),
    ("deepseek", frozenset({"<｜User｜>", "<｜Assistant｜>"})),
    ("openchat", frozenset({"<|end_of_turn|>"})),
    ("phi3", frozenset({"<|user|>", "<|assistant|>", "<|end|>"})),
    ("zephyr", frozenset({"<|user|>", "<|assistant|>"})),
    ("mistral", frozenset({"[INST]", "[/INST]"})),
)
"""Tokens of the vocabulary that were put there for a format, the most telling first."""

_BY_TYPE = {"mistral": "mistral", "qwen": "chatml", "qwen2": "chatml", "qwen3": "chatml", "exaone": "exaone"}


class Templates:
    """`core.api.ChatTemplates` of a family of decoders."""

    names = NAMES

    @staticmethod
    def source(name: str) -> str:
        """Return the Jinja source of one of `names`."""
        return (files(__package__) / "templates" / f"{name}.jinja").read_text(encoding="utf-8").removesuffix("\n")

    @staticmethod
    def suited(config: Mapping[str, object], tokens: frozenset[str]) -> str | None:
        """Return the format that a checkpoint was made for: its vocabulary tells, else its model type."""
        told = next((name for name, marks in _BY_TOKENS if marks <= tokens), None)
        return told or _BY_TYPE.get(str(config.get("model_type")))
