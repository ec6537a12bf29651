"""Changing logits before a token is chosen, in place: tokens that may not be taken, bias, penalties.

Each looks at its rows alone. Logits are of any float dtype.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from torch import Tensor

_FORBIDDEN = torch.from_numpy(np.unpackbits(~np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little"))
"""`(256, 8)`: which of eight tokens a byte forbids, those whose bit is 0."""


def mask_tokens(logits: Tensor, bits: Tensor) -> None:
    """Leave the tokens whose bit is set as they are, and set all others to minus infinity.

    Args:
        logits: `(n, vocab)`, changed in place.
        bits: `(n, words)` int32, at least 32 * words of the vocabulary: bit `t % 32` of word `t // 32` is token t's.
    """
    octets = bits.contiguous().view(torch.uint8)
    eights = _eights(bits.device).index_select(0, octets.flatten().int())
    forbidden = eights.view(octets.shape).view(torch.bool)[:, : logits.shape[1]]
    logits.masked_fill_(forbidden, float("-inf"))


@cache
def _eights(device: torch.device) -> Tensor:
    """Return `_FORBIDDEN` on a device, eight bytes as one number, which is picked eight times as fast."""
    return _FORBIDDEN.view(torch.int64).flatten().to(device)


def add_bias(logits: Tensor, rows: Tensor, ids: Tensor, values: Tensor) -> None:
    """Add numbers to the logits of chosen tokens.

    Args:
        logits: `(n, vocab)`, changed in place.
        rows, ids: `(t,)` int64, row and token of each number; no pair is there twice.
        values: `(t,)` float32. The sum is rounded to the dtype of the logits.
    """
    if logits.dtype is torch.float32:
        logits.index_put_((rows, ids), values, accumulate=True)
    else:
        logits[rows, ids] = (logits[rows, ids].float() + values).to(logits.dtype)


def penalize(logits: Tensor, rows: Tensor, counts: Tensor, prompt: Tensor, strengths: Tensor) -> None:
    """Penalise what rows have said so far.

    A token that is in the prompt or the output has its logit divided by the repetition penalty if it is positive, and
    multiplied by it otherwise. From one of the output the frequency penalty is then subtracted as often as it is
    there, and the presence penalty once. Computed in float32.

    Args:
        logits: `(n, vocab)`, changed in place.
        rows: `(m,)` int64, the row of each entry; no row is there twice.
        counts: `(m, vocab)` int32, how often each token is in the output.
        prompt: `(m, vocab)` bool, whether it is in the prompt.
        strengths: `(3, m)` float32: repetition (> 0, 1: none), frequency and presence penalty.
    """
    repetition, frequency, presence = strengths[:, :, None]
    values, said = logits[rows].float(), counts > 0
    factor = torch.where(values > 0, 1.0 / repetition, repetition)
    values = torch.where(prompt | said, values * factor, values)
    logits[rows] = (values - frequency * counts - presence * said).to(logits.dtype)
