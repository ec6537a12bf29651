"""A model plugin that gives vectors: whole prompts in, hidden states and class numbers out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from core.api.attention import AttentionPlan, BatchView
from core.api.descriptors import ModelSpec
from core_testing.conformance.subject import Subject
from core_testing.conformance.tools.devices import with_twins
from core_testing.conformance.tools.tiny_cases import LoadedModel, TinyCase, sampled_cases
from core_testing.tinyencoders import ENCODERS, reference_encoder


@dataclass(slots=True)
class _Step:
    token_ids: Tensor
    positions: Tensor
    plans: Sequence[AttentionPlan]
    token_types: Tensor | None
    arrays: tuple[Mapping[str, Tensor], ...] = ()

    @property
    def plan(self) -> AttentionPlan:
        return self.plans[0]


class Encoder(LoadedModel):
    """One model, which caches nothing."""

    @torch.inference_mode()
    def run(self, prompts: Sequence[Sequence[int]], types: Sequence[Sequence[int]] | None = None) -> list[Tensor]:
        """Return each prompt's hidden states, `(tokens, hidden)`; all prompts run in one step."""
        counts, device = [len(prompt) for prompt in prompts], self.device
        step = _Step(
            torch.tensor([token for prompt in prompts for token in prompt], device=device),
            torch.tensor([place for count in counts for place in range(count)], device=device),
            [self.backend.plan(whole_prompts(counts, device))],
            None if types is None else torch.tensor([one for prompt in types for one in prompt], device=device),
        )
        return list(torch.split(self.model.forward(step).float().cpu(), counts))

    @torch.inference_mode()
    def classify(self, pooled: Tensor) -> Tensor:
        """Return the head's numbers, `(rows, labels)`."""
        numbers: Tensor = self.model.classify(pooled.to(self.device)).float().cpu()
        return numbers


def whole_prompts(lengths: Sequence[int], device: torch.device) -> BatchView:
    """Return the batch of a step that takes whole prompts and caches nothing."""
    batch = BatchView(
        query_starts=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32),
        seq_lens=np.array(lengths, np.int32),
        block_tables=torch.zeros(len(lengths), 1, dtype=torch.int32, device=device),
        slots=torch.zeros(sum(lengths), dtype=torch.int64, device=device),
        max_query_len=max(lengths),
        max_seq_len=max(lengths),
    )
    return with_twins(batch, device)


def encoder_cases(subject: Subject) -> list[TinyCase]:
    """Return a case for every architecture of the kit's tiny families, and every sample of the plugin."""
    wanted = subject.spec(ModelSpec).architectures
    known = [name for name in wanted if name.split("For")[0].removesuffix("Model") in ENCODERS]
    cases = [TinyCase(name, name, reference_encoder(name)) for name in known]
    return cases + sampled_cases(
        subject, lambda one: reference_encoder(one.architecture, model_type=one.model_type, **one.config)
    )
