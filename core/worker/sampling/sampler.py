"""The sampler: the order in which everything is applied to a step's logits.

float32 logits -> raw log-probabilities -> allowed tokens -> grammar -> bad words -> min tokens -> bias -> penalties ->
plugins -> greedy argmax, or temperature -> plugins that never change the argmax -> top-k -> top-p -> min-p -> a draw.

Rows that ask for nothing in front of the argmax, and for no log-probabilities, are chosen by two kernels that read the
logits as they are; only the others are copied and worked on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from core.api.steps import NewRow
from core.ops.registry import REGISTRY
from core.ops.sampling import TEMPERATURE, UNIFORM
from core.worker.sampling.batch import Feature, SampleBatch
from core.worker.sampling.bias import LogitBias
from core.worker.sampling.forbidden import AllowedTokenIds, BadWords, MinTokens, StepTokens
from core.worker.sampling.logprobs import top_logprobs
from core.worker.sampling.params import RowParams
from core.worker.sampling.penalties import Penalties
from core.worker.sampling.plugin_logits import PluginLogits, PluginProcessor
from core.worker.sampling.processors import RowProcessor
from core.worker.sampling.rng import Uniforms
from core.worker.sampling.sampled import Listed, Sampled

if TYPE_CHECKING:
    from core.ops.registry import Op
    from core.worker.transfers import Transfers

PART_ELEMENTS = 2**22
"""Logits processed at a time: bounds the temporaries of a large batch and keeps them near the cache."""


@dataclass(frozen=True, slots=True)
class _Part:
    """Rows of a step that are worked on together: their places in it, and `numbers (5, m)` if any is drawn."""

    batch: SampleBatch
    places: np.ndarray
    numbers: np.ndarray | None


class Sampler:
    """Chooses one token for each sampled row. Holds the sampling parameters of all rows.

    Args:
        pick: Returns the form of an operation (`argmax`, `draw`, those of `core.ops.logits`); None takes the reference
            forms.

    Attributes:
        params: Per-row numbers and feature bits.
    """

    def __init__(
        self,
        max_rows: int,
        vocab_size: int,
        transfers: Transfers,
        seed: int = 0,
        plugins: Sequence[PluginProcessor] = (),
        pick: Callable[[str], Op] | None = None,
    ) -> None:
        self.params = RowParams(max_rows)
        pick = pick or (lambda op: REGISTRY[op].reference)
        self._argmax, self._draw = pick("argmax"), pick("draw")
        self._transfers = transfers
        self._uniforms = Uniforms(seed)
        self._part = max(1, PART_ELEMENTS // vocab_size)
        self._processors: tuple[RowProcessor, ...] = (
            AllowedTokenIds(vocab_size, transfers),
            StepTokens(transfers, pick("mask_tokens")),
            BadWords(vocab_size, transfers),
            MinTokens(vocab_size, transfers),
            LogitBias(vocab_size, transfers, pick("add_bias")),
            Penalties(max_rows, vocab_size, transfers, pick("penalize")),
        )
        self._one_position = [one for one in plugins if not one.drafts]
        early = [one for one in plugins if not one.processor.is_argmax_invariant]
        late = [one for one in plugins if one.processor.is_argmax_invariant]
        self._early = PluginLogits(Feature.PLUGGED, early)
        self._late = PluginLogits(Feature.PLUGGED_DRAW, late)

    @property
    def single(self) -> np.ndarray:
        """Rows that sample at one position of a step, `(max_rows,)` bool: a processor could not tell two apart."""
        found = np.zeros(len(self.params.flags), bool)
        for one in self._one_position:
            found |= one.rows
        return found

    def admit(self, new_rows: Sequence[NewRow]) -> None:
        """Take the parameters of new rows; what their rows' previous owners asked for is forgotten."""
        for new in new_rows:
            self.params.admit(new.row, new.params)
            for processor in self._processors:
                if processor.admit(new.row, new.params, new.stop_ids):
                    self.params.flags[new.row] |= processor.feature
            for group in (self._early, self._late):
                if group.processors and group.admit(new):
                    # A row that could not be admitted must be met in every step, whatever it samples with.
                    failed = Feature.PLUGGED if new.row in group.failed else 0
                    self.params.flags[new.row] |= group.feature | failed

    def best(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return the greatest logit of each row of `logits (n, vocab)`, float32, and its token, int64: `(n,)` each."""
        best: Tensor
        tokens: Tensor
        best, tokens = self._argmax(logits)
        return best, tokens

    def sample(self, logits: Tensor, batch: SampleBatch, best: Tensor, tokens: Tensor) -> Sampled:
        """Choose from `logits (n, vocab)`, any float dtype.

        Args:
            best, tokens: As `best` returns them of these logits; `tokens` are overwritten where others are chosen.
        """
        features = batch.features
        sampled = Sampled(tokens)
        sampled.check(None, best)
        if not features & (Feature.RANDOM | Feature.WORKED_ON):
            return sampled
        numbers = self._numbers(batch) if features & Feature.RANDOM else None
        if numbers is not None:
            self._draw_plain(logits, batch, numbers, sampled)
        if features & Feature.WORKED_ON:
            self._work(logits, batch, numbers, best, sampled)
        return sampled

    def _numbers(self, batch: SampleBatch) -> np.ndarray:
        """Return what each row is drawn with, as `core.ops.sampling.draw` takes it."""
        seeded = (batch.flags & Feature.SEEDED) != 0
        drawn = self.params.numbers[:, batch.rows]
        numbers = np.empty((len(drawn) + 1, len(batch.rows)))
        numbers[:-1] = drawn
        numbers[UNIFORM] = self._uniforms.draw(self.params.seeds[batch.rows], batch.output_counts, seeded)
        return numbers

    def _draw_plain(self, logits: Tensor, batch: SampleBatch, numbers: np.ndarray, out: Sampled) -> None:
        """Draw for the rows whose logits are taken as they are."""
        chosen = np.flatnonzero((batch.flags & (Feature.RANDOM | Feature.WORKED_ON)) == Feature.RANDOM)
        if len(chosen) == len(batch.rows):
            out.tokens = self._drawn(logits, None, numbers, batch.flags)
        elif len(chosen):
            index = self._index(chosen)
            out.tokens[index] = self._drawn(logits, index, numbers[:, chosen], batch.flags[chosen])

    def _drawn(self, logits: Tensor, rows: Tensor | None, numbers: np.ndarray, flags: np.ndarray) -> Tensor:
        truncated = bool((flags & Feature.TRUNCATED).any())
        drawn: Tensor = self._draw(logits, rows, self._transfers.upload(numbers), truncated=truncated)
        return drawn

    # -- rows that are worked on -----------------------------------------------------------------------------------

    def _work(self, logits: Tensor, batch: SampleBatch, numbers: np.ndarray | None, best: Tensor, out: Sampled) -> None:
        rows = batch.using(Feature.WORKED_ON)
        for begin in range(0, len(rows), self._part):
            places = rows[begin : begin + self._part]
            part = _Part(batch.take(places), places, None if numbers is None else numbers[:, places])
            index = self._index(places)
            out.tokens[index] = self._work_part(self._neutral(logits[index], best[index]), part, out)

    def _work_part(self, logits: Tensor, part: _Part, out: Sampled) -> Tensor:
        batch = part.batch
        raw, work = self._prepare(logits, batch, batch.features)
        self._note_plugins(part, out)  # before the choice, whose own notes come second
        tokens = self._choose(work, part, out)
        self._note_plugins(part, out)
        if raw is not None:
            self._report(raw, tokens, part, out)
        return tokens

    def _prepare(self, logits: Tensor, batch: SampleBatch, features: int) -> tuple[Tensor | None, Tensor]:
        """Return raw log-probabilities of the rows that asked, and the processed logits in float32."""
        raw = None
        if features & Feature.LOGPROBS:
            raw = logits[self._index(batch.using(Feature.LOGPROBS))].float().log_softmax(-1)
        if not features & Feature.LOGITS:
            return raw, logits.float()
        work = logits.to(torch.float32, copy=True)
        for processor in self._processors:
            if features & processor.feature:
                processor.apply(work, batch)
        if features & Feature.PLUGGED:
            self._early.apply(work, batch)
        return raw, work

    def _note_plugins(self, part: _Part, out: Sampled) -> None:
        for group in (self._early, self._late):
            errors = group.errors(part.batch)
            if errors:
                out.fail({int(part.places[i]): message for i, message in errors.items()})

    def _choose(self, logits: Tensor, part: _Part, out: Sampled) -> Tensor:
        best, tokens = self.best(logits)
        out.check(part.places, best)
        batch = part.batch
        random = batch.using(Feature.RANDOM)
        if part.numbers is None or not len(random):
            return tokens
        index, numbers, flags = self._index(random), part.numbers[:, random], batch.flags[random]
        if not batch.features & Feature.PLUGGED_DRAW:
            tokens[index] = self._drawn(logits, index, numbers, flags)
            return tokens
        highest = torch.where(best.isfinite(), best, 0.0)[index, None]
        temperature = self._transfers.upload(numbers[TEMPERATURE].astype(np.float32))[:, None]
        scaled = (self._neutral(logits, best)[index] - highest) / temperature
        self._late.apply(scaled, batch.take(random))
        numbers[TEMPERATURE] = 1.0
        tokens[index] = self._drawn(scaled, None, numbers, flags)
        return tokens

    def _report(self, raw: Tensor, tokens: Tensor, part: _Part, out: Sampled) -> None:
        asked = part.batch.using(Feature.LOGPROBS)
        rows = part.batch.rows[asked]
        alternatives = self.params.logprobs[rows]
        table = top_logprobs(raw, tokens[self._index(asked)], int(alternatives.max()))
        further: dict[int, tuple[list[int], Tensor]] = {}
        if self.params.asked:
            for i, row in enumerate(rows.tolist()):
                if row in self.params.asked:
                    ids = self.params.asked[row]
                    further[i] = ids, raw[i, self._index(np.array(ids, dtype=np.int64))]
        out.listed.append(Listed(part.places[asked], alternatives, table, further))

    def _index(self, places: np.ndarray) -> Tensor:
        return self._transfers.upload(places)

    def _neutral(self, logits: Tensor, best: Tensor) -> Tensor:
        """Replace rows that failed by zeros, so that what follows meets ordinary numbers."""
        sound = best.isfinite()
        # Asking is free where the work is done; elsewhere it would wait for the device, and replacing does not.
        if self._transfers.queue is None and bool(sound.all()):
            return logits
        return logits.masked_fill(~sound[:, None], 0.0)
