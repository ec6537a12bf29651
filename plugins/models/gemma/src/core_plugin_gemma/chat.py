"""The chat template of the family, for checkpoints that come without one: pretrained ones, and some conversions.

Torch-free.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files

TURN = frozenset({"<start_of_turn>", "<end_of_turn>"})
"""Tokens that every vocabulary of the family has for chats."""


class Templates:
    """`core.api.ChatTemplates` of this family."""

    names = ("gemma",)

    @staticmethod
    def source(name: str) -> str:
        """Return the Jinja source of one of `names`."""
        return (files(__package__) / "templates" / f"{name}.jinja").read_text(encoding="utf-8").removesuffix("\n")

    @staticmethod
    def suited(config: Mapping[str, object], tokens: frozenset[str]) -> str | None:
        """Return `gemma` for a vocabulary with the tokens of its turns, else None."""
        return "gemma" if tokens >= TURN else None
