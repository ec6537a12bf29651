"""Choosing tokens: the most likely one, or one drawn at random.

Both look at each row alone: what a row gets depends neither on the batch nor on the other rows' parameters.
"""

from __future__ import annotations

import torch
from torch import Tensor

from core.ops.truncation import cutoffs

TEMPERATURE, TOP_K, TOP_P, MIN_P, UNIFORM = range(5)
"""Rows of `numbers` in `draw`."""


def argmax(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Return each row's best value and its place, of `logits (n, vocab)` of any float dtype.

    Returns:
        `(n,)` float32 values and `(n,)` int64 places. Of equal values the first place counts; a row that holds a NaN
        has the value NaN and any of its places. So a row can be sampled from exactly if its best value is finite.
    """
    best, places = logits.max(-1)
    return best.float(), places


def draw(logits: Tensor, rows: Tensor | None, numbers: Tensor, *, truncated: bool) -> Tensor:
    """Draw one token per entry by inverting the cumulative distribution: one random number each, not one per token.

    What is left of the softmax of `logits / temperature` after top-k, top-p and min-p (see `truncation`) is summed up
    in the order of token ids; the token is the first whose sum exceeds `uniform` times the total.

    Args:
        logits: `(n, vocab)`, any float dtype.
        rows: `(m,)` int64, the row of each entry; None for all rows in order.
        numbers: `(5, m)` float64: temperature (> 0), top-k (0: all), top-p, min-p, and a uniform number in [0, 1).
        truncated: Whether any entry has a top-k, top-p or min-p; if not, they are not looked at.

    Returns:
        `(m,)` int64; of a row whose best value is not finite any valid token.
    """
    values = (logits if rows is None else logits[rows]).float()
    best = values.amax(-1, keepdim=True)
    sound = best.isfinite()
    temperature = numbers[TEMPERATURE, :, None].float()
    scaled = torch.where(sound, values - best, 0.0) / temperature
    if truncated:
        top_p, min_p = numbers[TOP_P, :, None].float(), numbers[MIN_P, :, None].float()
        low = cutoffs(scaled, numbers[TOP_K, :, None].long(), top_p, min_p)
        scaled = scaled.masked_fill_(scaled < low, float("-inf"))
    cumulative = scaled.softmax(-1).cumsum(-1, dtype=torch.float64)
    target = numbers[UNIFORM, :, None] * cumulative[:, -1:]
    # Strictly above the target: a token of probability zero never lifts the sum, so it is never the first above.
    drawn = torch.searchsorted(cumulative, target, right=True).flatten()
    return drawn.clamp_(max=scaled.shape[-1] - 1)
