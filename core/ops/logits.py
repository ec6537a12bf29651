"""Changing logits before a token is chosen, in place: tokens that may not be taken, bias, penalties.

Each looks at its rows alone. Logits are of any float dtype; numbers are computed in float32 and rounded once.
"""

from __future__ import annotations

import torch
from torch import Tensor

_SPREAD = 0x0101010101010101
_BIT_OF_BYTE = 0x8040201008040201 - 2**64
"""Bit i of the i-th byte, counted from the lowest."""


def mask_tokens(logits: Tensor, bits: Tensor) -> None:
    """Leave the tokens whose bit is set as they are, and set all others to minus infinity.

    Args:
        logits: `(n, vocab)`, changed in place.
        bits: `(n, words)` int32, at least 32 * words of the vocabulary: bit `t % 32` of word `t // 32` is token t's.
    """
    # A byte is repeated eight times and each copy left with one bit: eight bools without a loop over the bits.
    spread = bits.contiguous().view(torch.uint8).long().mul_(_SPREAD).bitwise_and_(_BIT_OF_BYTE)
    logits.masked_fill_(spread.view(torch.uint8)[:, : logits.shape[1]] == 0, float("-inf"))


def add_bias(logits: Tensor, rows: Tensor, ids: Tensor, values: Tensor) -> None:
    """Add numbers to the logits of chosen tokens.

    Args:
        logits: `(n, vocab)`, changed in place.
        rows, ids: `(t,)` int64, row and token of each number; no pair is there twice.
        values: `(t,)` float32.
    """
    logits.index_put_((rows, ids), (logits[rows, ids].float() + values).to(logits.dtype))


def penalize(logits: Tensor, rows: Tensor, counts: Tensor, prompt: Tensor, strengths: Tensor) -> None:
    """Penalise what rows have said so far.

    A token that is in the prompt or the output has its logit divided by the repetition penalty if it is positive, and
    multiplied by it otherwise. From one of the output the frequency penalty is then subtracted as often as it is
    there, and the presence penalty once.

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
