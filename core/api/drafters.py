"""Drafters: guesses of the next tokens that the model then verifies in one step. Provisional: no core drives it yet.

The engine will ask for drafts after a step has settled, run them together with the last known token, and keep the
longest prefix that sampling agrees with; what a drafter proposes changes speed, never the distribution of the output.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, slots=True)
class DrafterContext:
    """What a drafter is made with.

    Attributes:
        max_rows: Rows are numbered `0 .. max_rows - 1`.
        max_draft: Most tokens of one draft.
        vocab_size: Token ids are below this.
        options: The plugin's own options.
    """

    max_rows: int
    max_draft: int
    vocab_size: int
    options: Mapping[str, Any] = field(default_factory=dict)


class Drafter(Protocol):
    """Runtime of a `DrafterSpec` that reads token ids only (n-gram, suffix). Torch-free."""

    def __init__(self, ctx: DrafterContext) -> None: ...

    def admit(self, row: int, prompt: np.ndarray) -> None:
        """A request with these `(prompt,)` int32 tokens takes `row`."""
        ...

    def observe(self, rows: Sequence[int], tokens: Sequence[Sequence[int]]) -> None:
        """These tokens of these rows were settled, in order."""
        ...

    def propose(self, rows: Sequence[int], budget: int) -> list[list[int]]:
        """Return a draft (maybe empty, at most `max_draft` tokens) per row, `budget` tokens in all."""
        ...

    def release(self, row: int) -> None:
        """The request of `row` ended."""
        ...
