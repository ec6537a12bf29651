"""What is compared: distributions of the next token, and how far one is from the reference."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

TOP = 128
"""Tokens of a distribution that an engine tells; the others count as one."""

Distribution = Mapping[int, float]
"""Token -> log-probability, of the `TOP` most likely ones at least."""


@dataclass(frozen=True)
class Text:
    """Token ids, of which those from `start` on are the reference's answer."""

    ids: Sequence[int]
    start: int

    @property
    def places(self) -> range:
        """Return the places of the answer's tokens."""
        return range(self.start, len(self.ids))


@dataclass(frozen=True)
class Figures:
    """Of all places: the mean divergence, and the share where the most likely token is that of the reference.

    Attributes:
        perplexity, due: Of the text, by what was found and by the reference; 0 where there is no text of its own.
        spread: Standard error of `log(perplexity / due)` over the places.
    """

    divergence: float
    agreement: float
    places: int
    perplexity: float = 0.0
    due: float = 0.0
    spread: float = 0.0


def divergence(reference: np.ndarray, found: Distribution) -> float:
    """Return the Kullback-Leibler divergence of `found` from log-probabilities `(vocabulary,)`, in nats.

    It is that of the tokens in `found` and the sum of the others, hence a lower bound, and close to it.
    """
    tokens = np.fromiter(found, dtype=np.int64)
    log_q = np.fromiter((found[int(token)] for token in tokens), dtype=np.float64)
    log_p = reference[tokens].astype(np.float64)
    rest = [max(1 - float(np.exp(logs).sum()), 1e-9) for logs in (log_p, log_q)]
    return float((np.exp(log_p) * (log_p - log_q)).sum() + rest[0] * np.log(rest[0] / rest[1]))


def compare(
    references: Iterable[np.ndarray], found: Iterable[Distribution], text: Sequence[int] | None = None
) -> Figures:
    """Compare place by place.

    Args:
        text: The token that stands at each place, for perplexities.
    """
    pairs = list(zip(references, found, strict=True))
    alike = [int(reference.argmax()) == max(one, key=lambda token: one[token]) for reference, one in pairs]
    mean, share = float(np.mean([divergence(*pair) for pair in pairs])), float(np.mean(alike))
    if text is None:
        return Figures(mean, share, len(pairs))
    told = np.array(
        [(reference[token], _told(one, token)) for (reference, one), token in zip(pairs, text, strict=True)]
    )
    due, own = np.exp(-told.mean(0)).tolist()
    spread = float((told[:, 0] - told[:, 1]).std() / np.sqrt(len(told)))
    return Figures(mean, share, len(pairs), own, due, spread)


def _told(found: Distribution, token: int) -> float:
    """Return a token's log-probability; if it is not told, that of what others leave, but no more than the least."""
    if token in found:
        return float(found[token])
    rest = max(1 - float(np.exp(np.fromiter(found.values(), dtype=np.float64)).sum()), 1e-9)
    return min(float(np.log(rest)), min(found.values()))
