"""Chat templates for checkpoints that come without one: formats that decoders of this kind are trained with.

Each is a file in `templates`. Torch-free.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files

NAMES = (
    "alpaca",
    "chatml",
    "command-r",
    "deepseek",
    "deepseek-llm",
    "gemma",
    "llama2",
    "llama3",
    "mistral",
    "openchat",
    "phi3",
    "vicuna",
    "zephyr",
)

_BY_TOKENS: tuple[tuple[str, frozenset[str]], ...] = (
    ("chatml", frozenset({"<|im_start|>", "<|im_end|>"})),
    ("llama3", frozenset({"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"})),
    ("gemma", frozenset({"<start_of_turn>", "<end_of_turn>"})),
    ("command-r", frozenset({"<|START_OF_TURN_TOKEN|>", "<|END_OF_TURN_TOKEN|>", "<|CHATBOT_TOKEN|>"})),
    ("deepseek", frozenset({"<｜User｜>", "<｜Assistant｜>"})),
    ("openchat", frozenset({"<|end_of_turn|>"})),
    ("phi3", frozenset({"<|user|>", "<|assistant|>", "<|end|>"})),
    ("zephyr", frozenset({"<|user|>", "<|assistant|>"})),
    ("mistral", frozenset({"[INST]", "[/INST]"})),
)
"""Tokens of the vocabulary that were put there for a format, the most telling first."""

_BY_TYPE = {"mistral": "mistral", "qwen2": "chatml", "qwen3": "chatml"}


class Templates:
    """`core.api.ChatTemplates` of this family."""

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
