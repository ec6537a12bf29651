"""Requests for the conformance kit (`core plugins test top_n_sigma`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from torch import Tensor

from core_testing.conformance import LogitsSample


def kept(n: float) -> Callable[[Tensor, Sequence[int], Sequence[int]], Tensor]:
    """Return what becomes of a row's logits, in plain torch."""

    def reference(logits: Tensor, prompt: Sequence[int], output: Sequence[int]) -> Tensor:
        low = logits.max() - n * logits.std(correction=0)
        return logits.where(logits >= low, float("-inf"))

    return reference


def samples() -> Iterator[LogitsSample]:
    """Yield requests that keep few tokens and many."""
    for n in (0.5, 1.0, 3.0):
        yield LogitsSample(f"{n:g} deviations", {"top_n_sigma": n}, reference=kept(n))
