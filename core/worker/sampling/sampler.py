"""The sampler: the order in which everything is applied to a step's logits.

float32 logits -> raw log-probabilities -> allowed tokens -> grammar -> bad words -> min tokens -> bias -> penalties ->
plugins -> greedy argmax, or temperature -> plugins that never change the argmax -> top-k -> top-p -> min-p -> a draw.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from core.engine.step import NewRow, TopLogprobs
from core.worker.sampling.batch import Feature, SampleBatch
from core.worker.sampling.bias import LogitBias
from core.worker.sampling.logprobs import split_rows, top_logprobs
from core.worker.sampling.masks import AllowedTokens, BadWords, GrammarMask, MinTokens
from core.worker.sampling.params import RowParams, column
from core.worker.sampling.penalties import Penalties
from core.worker.sampling.plugged import Plugged, PluggedLogits
from core.worker.sampling.processors import LogitsProcessor
from core.worker.sampling.rng import Uniforms
from core.worker.sampling.truncation import cutoffs

PART_ELEMENTS = 2**22
"""Logits processed at a time: bounds the temporaries of a large batch and keeps them near the cache."""

NOT_FINITE = "CORE-E121 The model produced logits that are not finite numbers for this request."
NOTHING_LEFT = (
    "CORE-E122 No token is left to sample: allowed_token_ids, bad_words, logit_bias and min_tokens exclude every one."
)


@dataclass(slots=True)
class Sampled:
    """What the sampler chose.

    Attributes:
        tokens: `(n,)` int64 on the device; of rows in `errors`, any valid token.
        logprobs: Index -> log-probabilities of rows that asked.
        errors: Index -> why no token could be chosen for this row.
    """

    tokens: Tensor
    logprobs: dict[int, TopLogprobs] = field(default_factory=dict)
    errors: dict[int, str] = field(default_factory=dict)


class Sampler:
    """Chooses one token for each sampled row. Holds the sampling parameters of all rows.

    Attributes:
        params: Per-row numbers and feature bits.
    """

    def __init__(
        self, max_rows: int, vocab_size: int, device: torch.device, seed: int = 0, plugged: Sequence[Plugged] = ()
    ) -> None:
        self.params = RowParams(max_rows)
        self._uniforms = Uniforms(seed, device)
        self._part = max(1, PART_ELEMENTS // vocab_size)
        self._processors: tuple[LogitsProcessor, ...] = (
            AllowedTokens(vocab_size, device),
            GrammarMask(vocab_size, device),
            BadWords(vocab_size, device),
            MinTokens(vocab_size, device),
            LogitBias(vocab_size, device),
            Penalties(max_rows, vocab_size, device),
        )
        early = [one for one in plugged if not one.processor.is_argmax_invariant]
        late = [one for one in plugged if one.processor.is_argmax_invariant]
        self._early = PluggedLogits(Feature.PLUGGED, early)
        self._late = PluggedLogits(Feature.PLUGGED_DRAW, late)

    def admit(self, new_rows: Sequence[NewRow]) -> None:
        """Take the parameters of new rows; what their rows' previous owners asked for is forgotten."""
        for new in new_rows:
            self.params.admit(new.row, new.params)
            for processor in self._processors:
                if processor.admit(new.row, new.params, new.stop_ids):
                    self.params.flags[new.row] |= processor.feature
            for plugged in (self._early, self._late):
                if plugged.processors and plugged.admit(new):
                    # A row that could not be admitted must be met in every step, whatever it samples with.
                    failed = Feature.PLUGGED if new.row in plugged.failed else 0
                    self.params.flags[new.row] |= plugged.feature | failed

    def sample(self, logits: Tensor, batch: SampleBatch) -> Sampled:
        """Choose from `logits (n, vocab)`, any float dtype."""
        sampled = Sampled(torch.zeros(len(logits), dtype=torch.int64, device=logits.device))
        for place, part in batch.parts(self._part):
            self._sample_part(logits[place], part, place.start, sampled)
        return sampled

    def _sample_part(self, logits: Tensor, batch: SampleBatch, begin: int, out: Sampled) -> None:
        features = batch.features
        if not features & (Feature.RANDOM | Feature.LOGPROBS | Feature.LOGITS):
            best, tokens = logits.max(-1)
            tokens = tokens.masked_fill(~_note(best, begin, out), 0)
        else:
            logits = _neutral(logits, _note(logits.amax(-1), begin, out))
            raw, work = self._prepare(logits, batch, features)
            self._note_plugged(batch, begin, out)  # before `_choose`, whose own notes come second
            tokens = self._choose(work, batch, features, begin, out)
            self._note_plugged(batch, begin, out)
            if raw is not None:
                self._report(raw, tokens, batch, begin, out)
        out.tokens[begin : begin + len(tokens)] = tokens

    def _prepare(self, logits: Tensor, batch: SampleBatch, features: int) -> tuple[Tensor | None, Tensor]:
        """Return raw log-probabilities of the rows that asked, and the processed logits in float32."""
        raw = None
        if features & Feature.LOGPROBS:
            raw = logits[_index(batch.using(Feature.LOGPROBS), logits)].float().log_softmax(-1)
        if not features & Feature.LOGITS:
            return raw, logits.float()
        work = logits.to(torch.float32, copy=True)
        for processor in self._processors:
            if features & processor.feature:
                processor.apply(work, batch)
        if features & Feature.PLUGGED:
            self._early.apply(work, batch)
        return raw, work

    def _note_plugged(self, batch: SampleBatch, begin: int, out: Sampled) -> None:
        for plugged in (self._early, self._late):
            for i, message in plugged.errors(batch).items():
                out.errors.setdefault(begin + i, message)

    def _choose(self, logits: Tensor, batch: SampleBatch, features: int, begin: int, out: Sampled) -> Tensor:
        best, tokens = logits.max(-1)
        sound = _note(best, begin, out)
        tokens = tokens.masked_fill(~sound, 0)
        if not features & Feature.RANDOM:
            return tokens
        random = batch.using(Feature.RANDOM)
        index = _index(random, logits)
        temperature = column(self.params.temperature[batch.rows[random]], logits.device)
        scaled = (_neutral(logits, sound)[index] - best.masked_fill(~sound, 0)[index, None]) / temperature
        if features & Feature.PLUGGED_DRAW:
            self._late.apply(scaled, batch.take(random))
        if features & Feature.TRUNCATED:
            self._truncate(scaled, batch.rows[random], batch.flags[random])
        tokens[index] = self._draw(scaled, batch, random)
        return tokens

    def _truncate(self, scaled: Tensor, rows: np.ndarray, flags: np.ndarray) -> None:
        """Mask what top-k, top-p and min-p leave out, in place; other rows keep everything."""
        chosen = np.flatnonzero(flags & Feature.TRUNCATED)
        rows, params = rows[chosen], self.params
        index = _index(chosen, scaled)
        values = scaled[index]
        numbers = (column(array[rows], scaled.device) for array in (params.top_k, params.top_p, params.min_p))
        scaled[index] = values.masked_fill_(values < cutoffs(values, *numbers), float("-inf"))

    def _draw(self, scaled: Tensor, batch: SampleBatch, random: np.ndarray) -> Tensor:
        """Draw by inverting the cumulative distribution: one random number per row, not one per token."""
        seeded = (batch.flags[random] & Feature.SEEDED) != 0
        numbers = self._uniforms.draw(self.params.seeds[batch.rows[random]], batch.output_counts[random], seeded)
        cumulative = scaled.softmax(-1).cumsum(-1, dtype=torch.float64)
        target = numbers[:, None] * cumulative[:, -1:]
        # Strictly above the target: a token of probability zero never lifts the sum, so it is never the first above.
        drawn = torch.searchsorted(cumulative, target, right=True).flatten()
        return drawn.clamp_(max=scaled.shape[-1] - 1)

    def _report(self, raw: Tensor, tokens: Tensor, batch: SampleBatch, begin: int, out: Sampled) -> None:
        asked = batch.using(Feature.LOGPROBS)
        alternatives = self.params.logprobs[batch.rows[asked]]
        table = top_logprobs(raw, tokens[_index(asked, raw)], int(alternatives.max()))
        for i, entry in zip(asked.tolist(), split_rows(table, alternatives)):
            if begin + i not in out.errors:
                out.logprobs[begin + i] = entry


def _note(best: Tensor, begin: int, out: Sampled) -> Tensor:
    """Say which rows have a finite best logit, and note an error for the others that have none yet."""
    sound = best.isfinite()
    if not bool(sound.all()):
        for i in (~sound).nonzero().flatten().tolist():
            message = NOTHING_LEFT if float(best[i]) == float("-inf") else NOT_FINITE
            out.errors.setdefault(begin + i, message)
    return sound


def _neutral(logits: Tensor, sound: Tensor) -> Tensor:
    """Replace rows that failed by zeros, so that what follows meets ordinary numbers."""
    return logits if bool(sound.all()) else logits.masked_fill(~sound[:, None], 0.0)


def _index(places: np.ndarray, like: Tensor) -> Tensor:
    return torch.from_numpy(places).to(like.device)
