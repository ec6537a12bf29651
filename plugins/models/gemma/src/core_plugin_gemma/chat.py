"""The chat template of the family, for checkpoints that come without one: pretrained ones, and some conversions.

Torch-free.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files

TURN = frozenset({"<start_of_turn>", "<end_of_turn>"})
"""Tokens that every vocabulary of Gemma 1 to 3 has for chats."""
TURN4 = frozenset({"<|turn>", "<turn|>"})
"""Those of Gemma 4."""
_CLOSED = "{%- set closed = true -%}\n"


class Templates:
    """`core.api.ChatTemplates` of this family.

    `gemma4-closed` is `gemma4` with an empty thought at the start of an answer that needs none, as the larger models
    of Gemma 4 were trained; the smaller ones, whose layers have inputs of their own, were not.
    """

    names = ("gemma", "gemma4", "gemma4-closed")

    @staticmethod
    def source(name: str) -> str:
        """Return the Jinja source of one of `names`."""
        file = files(__package__) / "templates" / f"{name.removesuffix('-closed')}.jinja"
        text = file.read_text(encoding="utf-8").removesuffix("\n")
        return _CLOSED + text if name.endswith("-closed") else text

    @staticmethod
    def suited(config: Mapping[str, object], tokens: frozenset[str]) -> str | None:
        """Return the template of the turns whose tokens the vocabulary has; None: it has none of them."""
        if tokens >= TURN4:
            return "gemma4" if config.get("hidden_size_per_layer_input") else "gemma4-closed"
        return "gemma" if tokens >= TURN else None
