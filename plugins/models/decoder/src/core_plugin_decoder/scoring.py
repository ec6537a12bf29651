"""Heads of models that classify, as a description says. Shapes: D hidden size; C classes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from core.api import LayerBuilder
    from core_plugin_decoder.description import Score


class LinearScores:
    """A linear layer, perhaps behind another one with a ReLU."""

    def __init__(self, given: Score, build: LayerBuilder, hidden_size: int, labels: int) -> None:
        self.inner = None if given.inner is None else build.linear(hidden_size, hidden_size, given.inner, bias=True)
        self.relu, self.scale = build.activation("relu"), given.scale
        self.project = build.linear(hidden_size, labels, given.name, bias=given.bias)

    def __call__(self, pooled: Tensor) -> Tensor:
        """`(rows, D) -> (rows, C)`."""
        if self.inner is not None:
            pooled = self.relu(self.inner(pooled))
        numbers = self.project(pooled)
        return numbers if self.scale == 1.0 else numbers * self.scale


class TokenScores:
    """Logits of some tokens, or how much that of a second exceeds that of a first. Not for divided vocabularies.

    Args:
        logits: `(rows, D) -> (rows, vocab)`.
    """

    def __init__(self, given: Score, logits: Callable[[Tensor], Tensor]) -> None:
        self.tokens, self.difference, self.logits = list(given.tokens), given.difference, logits

    def __call__(self, pooled: Tensor) -> Tensor:
        """`(rows, D) -> (rows, C)`."""
        numbers = self.logits(pooled)[:, self.tokens]
        return numbers[:, 1:] - numbers[:, :1] if self.difference else numbers
