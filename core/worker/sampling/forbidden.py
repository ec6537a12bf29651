"""Tokens that must not be sampled: outside an allowed set, ending a bad word, or ending the text too early."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from core.api.sampling_params import SamplingParams
from core.worker.sampling.batch import Feature, SampleBatch
from core.worker.sampling.processors import id_tensor
from core.worker.transfers import Transfers

if TYPE_CHECKING:
    from core.ops.registry import Op

NEVER = float("-inf")
_ANY = -1


class AllowedTokenIds:
    """Keeps `allowed_token_ids` and nothing else."""

    feature = Feature.ALLOWED

    def __init__(self, vocab_size: int, transfers: Transfers) -> None:
        self._vocab_size = vocab_size
        self._transfers = transfers
        self._ids: dict[int, Tensor] = {}

    def admit(self, row: int, params: SamplingParams, stop_ids: Sequence[int]) -> bool:
        """Take the row's allowed ids."""
        self._ids.pop(row, None)
        if params.allowed_token_ids is None:
            return False
        self._ids[row] = id_tensor(params.allowed_token_ids, self._vocab_size, self._transfers)
        return True

    def apply(self, logits: Tensor, batch: SampleBatch) -> None:
        """Mask every other token."""
        for i in batch.using(self.feature).tolist():
            ids = self._ids[int(batch.rows[i])]
            kept = logits[i, ids]
            logits[i] = NEVER
            logits[i, ids] = kept


class MinTokens:
    """Holds back stop tokens until a row has produced `min_tokens`."""

    feature = Feature.MIN_TOKENS

    def __init__(self, vocab_size: int, transfers: Transfers) -> None:
        self._vocab_size = vocab_size
        self._transfers = transfers
        self._rows: dict[int, tuple[int, Tensor, np.ndarray]] = {}

    def admit(self, row: int, params: SamplingParams, stop_ids: Sequence[int]) -> bool:
        """Take the row's stop ids, if it has a minimum."""
        self._rows.pop(row, None)
        if params.min_tokens == 0 or not stop_ids:
            return False
        ids = id_tensor(stop_ids, self._vocab_size, self._transfers)
        self._rows[row] = (params.min_tokens, ids, _bits(stop_ids, self._vocab_size))
        return True

    def apply(self, logits: Tensor, batch: SampleBatch) -> None:
        """Mask the stop ids of rows that are still too short."""
        for i in batch.using(self.feature).tolist():
            row = int(batch.rows[i])
            minimum, ids, stops = self._rows[row]
            mask = batch.allowed.get(row)
            if mask is not None and not (mask & ~stops).any():
                continue  # nothing but the end may follow
            if batch.output_counts[i] < minimum:
                logits[i, ids] = NEVER


def _bits(ids: Sequence[int], vocab_size: int) -> np.ndarray:
    """Return a mask, `(words,)` int32, of these tokens."""
    bits = np.zeros(-(-vocab_size // 32) * 32, np.uint8)
    bits[[token for token in ids if token < vocab_size]] = 1
    return np.packbits(bits, bitorder="little").view("<i4").astype(np.int32)


@dataclass(frozen=True, slots=True)
class _Words:
    """A row's bad words: `prefixes (words, longest)`, padded on the left, and the `(words,)` last tokens."""

    prefixes: Tensor
    last: Tensor


class BadWords:
    """Masks the last token of each bad token sequence when the row's text ends with the tokens before it."""

    feature = Feature.BAD_WORDS

    def __init__(self, vocab_size: int, transfers: Transfers) -> None:
        self._vocab_size = vocab_size
        self._transfers = transfers
        self._rows: dict[int, _Words] = {}

    def admit(self, row: int, params: SamplingParams, stop_ids: Sequence[int]) -> bool:
        """Take the row's sequences."""
        self._rows.pop(row, None)
        words = [word for word in params.bad_token_ids if word and 0 <= word[-1] < self._vocab_size]
        if not words:
            return False
        longest = max(len(word) for word in words) - 1
        prefixes = [[_ANY] * (longest - len(word) + 1) + word[:-1] for word in words]
        self._rows[row] = _Words(
            self._transfers.upload(np.array(prefixes, dtype=np.int32).reshape(len(words), longest)),
            self._transfers.upload(np.array([word[-1] for word in words], dtype=np.int64)),
        )
        return True

    def apply(self, logits: Tensor, batch: SampleBatch) -> None:
        """Compare each row's tail with all its prefixes at once."""
        for i in batch.using(self.feature).tolist():
            row, known = int(batch.rows[i]), int(batch.known[i])
            words = self._rows[row]
            longest = words.prefixes.shape[1]
            tail = batch.pool[row, max(known - longest, 0) : known]
            if len(tail) < longest:
                # A text shorter than the prefix: what is missing equals no token, only the padding.
                tail = torch.nn.functional.pad(tail, (longest - len(tail), 0), value=_ANY - 1)
            hit = ((words.prefixes == tail) | (words.prefixes == _ANY)).all(1)
            # Added, not assigned: several words may end in the same token, and one hit is enough.
            logits[i].index_add_(0, words.last, torch.zeros_like(hit, dtype=logits.dtype).masked_fill_(hit, NEVER))


class StepTokens:
    """Keeps the tokens that participants allow in this step; they come with the batch.

    Args:
        mask: The form of `mask_tokens` to use.
    """

    feature = Feature.CONSTRAINED

    def __init__(self, transfers: Transfers, mask: Op) -> None:
        self._transfers = transfers
        self._mask = mask

    def admit(self, row: int, params: SamplingParams, stop_ids: Sequence[int]) -> bool:
        """Whether a row is constrained is known only in each step."""
        return False

    def apply(self, logits: Tensor, batch: SampleBatch) -> None:
        """Leave the allowed tokens as they are and nothing else."""
        chosen = batch.using(self.feature)
        bits = np.stack([batch.allowed[int(row)] for row in batch.rows[chosen]])
        uploaded = self._transfers.upload(bits.astype(np.int32, copy=False))
        ends = [*(np.flatnonzero(np.diff(chosen) != 1) + 1).tolist(), len(chosen)]
        for begin, end in zip([0, *ends], ends):  # rows that follow each other at once
            first = int(chosen[begin])
            self._mask(logits[first : first + end - begin], uploaded[begin:end])
