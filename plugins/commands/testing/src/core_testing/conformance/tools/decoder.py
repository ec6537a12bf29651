"""A model plugin that generates: sequences of token ids in, logits out, some tokens of each per step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from core.api.attention import AttentionPlan, BatchView
from core.api.descriptors import ModelSpec
from core.api.ranks import Ranks
from core.api.states import StateRows
from core.api.weights import WeightTensor
from core_testing.conformance.subject import Subject
from core_testing.conformance.tools.devices import with_twins
from core_testing.conformance.tools.tiny_cases import BLOCK_SIZE, LoadedModel, TinyCase, sampled_cases
from core_testing.tinymodels import FAMILIES, reference_model

_BLOCKS = 80
_SLOTS = 8


@dataclass(slots=True)
class _Step:
    token_ids: Tensor
    positions: Tensor
    plans: Sequence[AttentionPlan]
    states: StateRows

    @property
    def plan(self) -> AttentionPlan:
        return self.plans[0]


@dataclass(slots=True)
class Track:
    """A sequence: its blocks, how many of its tokens are in the cache, and the slot of its states."""

    blocks: list[int] = field(default_factory=list)
    length: int = 0
    slot: int | None = None


class Decoder(LoadedModel):
    """One model with its own cache."""

    def __init__(
        self,
        subject: Subject,
        case: TinyCase,
        tensors: Iterable[WeightTensor] | None = None,
        *,
        ranks: Ranks | None = None,
        all_reduce: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        super().__init__(subject, case, tensors, ranks=ranks, all_reduce=all_reduce)
        for attention in self.attentions:
            layout = attention.layout(self.backend)
            attention.kv = torch.zeros((_BLOCKS, *layout.block_shape), dtype=layout.dtype, device=self.device)
        for state in self.states:
            # What a slot held before its sequence is nothing to multiply with.
            state.memory = torch.full((_SLOTS, *state.shape), torch.nan, dtype=state.dtype, device=self.device)
        self._slots = list(range(_SLOTS))
        # Scattered, so that a model which counts on neighbouring blocks is found out.
        self._free = np.random.default_rng(0).permutation(np.arange(1, _BLOCKS)).tolist()

    def fork(self, sequence: Track) -> Track:
        """Return a sequence that shares the blocks of another, and has a copy of its states."""
        slot = self._slots.pop() if self.states else None
        for state in self.states:
            state.memory[slot] = state.memory[sequence.slot]
        return Track(list(sequence.blocks), sequence.length, slot)

    @torch.inference_mode()
    def run(self, work: Sequence[tuple[Track, Sequence[int]]]) -> list[Tensor]:
        """Feed further tokens to each sequence; return the logits of each, `(tokens, vocabulary)`."""
        fresh = [not sequence.length for sequence, _ in work]
        for sequence, tokens in work:
            if sequence.slot is None and self.states:
                sequence.slot = self._slots.pop()
            sequence.length += len(tokens)
            while len(sequence.blocks) * BLOCK_SIZE < sequence.length:
                sequence.blocks.append(self._free.pop())
        batch, positions = self._view(work)
        ids = torch.tensor([token for _, tokens in work for token in tokens], device=self.device)
        rows = StateRows(
            torch.tensor([sequence.slot or 0 for sequence, _ in work], device=self.device),
            torch.tensor(fresh, dtype=torch.int64, device=self.device),
            batch.query_starts,
            torch.from_numpy(batch.query_starts).to(self.device),
        )
        step = _Step(ids, positions, [self.backend.plan(batch)], rows)
        logits = self.model.logits(self.model.forward(step)).float().cpu()
        return list(torch.split(logits, [len(tokens) for _, tokens in work]))

    def _view(self, work: Sequence[tuple[Track, Sequence[int]]]) -> tuple[BatchView, Tensor]:
        counts = np.array([len(tokens) for _, tokens in work])
        lengths = np.array([sequence.length for sequence, _ in work])
        tables = np.zeros((len(work), max(len(sequence.blocks) for sequence, _ in work)), np.int32)
        positions, slots = [], []
        for place, (sequence, tokens) in enumerate(work):
            tables[place, : len(sequence.blocks)] = sequence.blocks
            mine = np.arange(sequence.length - len(tokens), sequence.length)
            positions.append(mine)
            slots.append(tables[place, mine // BLOCK_SIZE].astype(np.int64) * BLOCK_SIZE + mine % BLOCK_SIZE)
        batch = BatchView(
            query_starts=np.concatenate([[0], np.cumsum(counts)]).astype(np.int32),
            seq_lens=lengths.astype(np.int32),
            block_tables=torch.from_numpy(tables).to(self.device),
            slots=torch.from_numpy(np.concatenate(slots)).to(self.device),
            max_query_len=int(counts.max()),
            max_seq_len=int(lengths.max()),
        )
        return with_twins(batch, self.device), torch.from_numpy(np.concatenate(positions)).to(self.device)


def decoder_cases(subject: Subject) -> list[TinyCase]:
    """Return a case for every tiny family of the kit, and every sample of the plugin, of its architectures."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as ARCHITECTURES

    wanted = subject.spec(ModelSpec).architectures
    known = {family: ARCHITECTURES.get(model_type) for family, (model_type, _) in FAMILIES.items()}
    cases = [TinyCase(family, name, reference_model(family)) for family, name in known.items() if name in wanted]
    return cases + sampled_cases(subject, lambda one: reference_model(model_type=one.model_type, **one.config))
