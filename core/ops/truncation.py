"""Top-k, top-p and min-p as one number per row: the smallest value that is still sampled.

A cut-off instead of a sorted vocabulary: most rows need only their best few values, which a partial selection finds in
a tenth of the time of a sort. Tokens whose value equals the cut-off are all kept, so that a row's support does not
depend on the order in which equal values happen to be found, and hence not on the batch.
"""

from __future__ import annotations

import torch
from torch import Tensor

WIDTHS = (128, 2048)
"""How many of the best values are looked at, first and at second try; after that, all."""


def cutoffs(logits: Tensor, top_k: Tensor, top_p: Tensor, min_p: Tensor) -> Tensor:
    """Return `(n, 1)` float32: tokens of `logits (n, vocab)` below their row's number are not sampled.

    Args:
        logits: After temperature, at least one finite value per row.
        top_k: `(n, 1)` int64, 0 for all.
        top_p: `(n, 1)` in (0, 1]: the smallest set, among the top k, whose probability reaches it.
        min_p: `(n, 1)` in [0, 1]: probability relative to the most likely token.
    """
    best = logits.amax(-1, keepdim=True)
    low = torch.where(min_p > 0, best + min_p.log(), float("-inf"))
    wanted = ((top_k > 0) | (top_p < 1)).flatten()
    rows = wanted.nonzero().flatten()
    for width in (*WIDTHS, logits.shape[-1]):
        if len(rows) == 0:
            break
        cut, complete = _selected(logits[rows], top_k[rows], top_p[rows], width)
        low[rows[complete]] = torch.maximum(low[rows[complete]], cut[complete])
        rows = rows[~complete]
    return low


def _selected(logits: Tensor, top_k: Tensor, top_p: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Return the `(n, 1)` cut-offs by top-k and top-p, and for which rows the best `width` values decide them."""
    vocab = logits.shape[-1]
    width = min(width, vocab)
    values = logits.topk(width, -1).values
    limit = torch.where(top_k > 0, top_k, vocab).clamp(max=vocab)
    kth = torch.where(limit <= width, values.gather(1, limit.clamp(max=width) - 1), float("-inf"))
    inside = values >= kth
    # Equal values may go on behind the last one seen; behind minus infinity nothing does.
    tail = values[:, -1:]
    all_seen = (tail < kth) | (tail == float("-inf"))
    total = torch.where(
        limit < vocab, values.masked_fill(~inside, float("-inf")).logsumexp(-1, True), logits.logsumexp(-1, True)
    )
    probability = (values - total).exp()
    before = probability.cumsum(-1) - probability
    kept = inside & ((before < top_p) | (top_p >= 1))
    last = kept.sum(-1, keepdim=True) - 1
    cut = values.gather(1, last)
    # Undecided: top-k reaches past what was seen, or top-p keeps all that was seen and may want more.
    by_p = (limit == vocab) & (last < width - 1)
    complete = ((limit < vocab) & all_seen) | by_p | (width == vocab)
    return cut, complete.flatten()
