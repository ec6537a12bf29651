"""An encoder plugin on plain layers: whole prompts in, hidden states and class numbers out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from core.api.attention import AttentionContext, AttentionPlan, AttentionSite, BatchView
from core.api.descriptors import ModelSpec
from core.api.quantization import QuantContext
from core.api.weights import WeightTensor
from core.layers.builder import Builder
from core.testing.conformance.samples import ModelSample
from core.testing.conformance.subject import Subject
from core.testing.conformance.tools.decoder import TinyCase, settings
from core.testing.conformance.tools.devices import device_of
from core.testing.conformance.tools.plain import PlainAttention, PlainWeights
from core.testing.tinyencoders import ENCODERS, reference_encoder
from core.worker.loading.fill import WeightFiller
from core.worker.loading.names import NameMap

LONGEST = 96


def encode_plainly(q: Tensor, k: Tensor, v: Tensor, starts: Sequence[int], site: AttentionSite) -> Tensor:
    """Attend within each row by definition, in float32.

    Shapes: `q (tokens, heads, head_dim)`, `k, v (tokens, kv_heads, head_dim)` -> `(tokens, heads * head_dim)`.
    """
    parts = []
    groups = site.num_heads // site.num_kv_heads
    for begin, end in pairwise(starts):
        keys, values = (x[begin:end].float().repeat_interleave(groups, dim=1) for x in (k, v))
        scores = torch.einsum("qhd,khd->hqk", q[begin:end].float(), keys) * site.scale
        if site.bias is not None:
            scores = scores + site.bias(end - begin).float()
        if site.window is not None:
            ramp = torch.arange(end - begin, device=q.device)
            scores = scores.masked_fill((ramp[:, None] - ramp).abs() > site.window // 2, -torch.inf)
        parts.append(torch.einsum("hqk,khd->qhd", scores.softmax(-1), values))
    return torch.cat(parts).flatten(1)


class _PlainEncoder:
    def __init__(self, site: AttentionSite) -> None:
        self._site = site

    def forward(self, q: Tensor, k: Tensor, v: Tensor, plan: Any) -> Tensor:
        """Attend; the plan is the batch."""
        return encode_plainly(q, k, v, plan.query_starts.tolist(), self._site).to(q.dtype)


class PlainEncoding(PlainAttention):
    """The plain backend, with attention that needs no cache."""

    def __init__(self, ctx: AttentionContext) -> None:
        super().__init__(ctx)
        self.sites: list[AttentionSite] = []

    def encoder(self, site: AttentionSite) -> _PlainEncoder:
        """Return the attention of one layer."""
        self.sites.append(site)
        return _PlainEncoder(site)


@dataclass(slots=True)
class _Step:
    token_ids: Tensor
    positions: Tensor
    plan: AttentionPlan
    token_types: Tensor | None
    arrays: tuple[Mapping[str, Tensor], ...] = ()


class Encoder:
    """One model, loaded."""

    def __init__(self, subject: Subject, case: TinyCase, tensors: Iterable[WeightTensor] | None = None) -> None:
        self.device = device_of(subject)
        dtype = torch.float32
        self._backend = PlainEncoding(AttentionContext(self.device, dtype, dtype, 16))
        scheme = PlainWeights(QuantContext(self.device, dtype, {}))
        builder = Builder(scheme, self._backend, device=self.device, dtype=dtype, max_positions=LONGEST)
        implementation = subject.impl()
        self.model: Any = implementation(settings(case), builder)
        self.rules = implementation.weight_rules(settings(case))
        self.names = NameMap(self.rules, builder.tied)
        self.targets = {name for group in builder.groups for name in group.targets()}
        WeightFiller(builder.groups, self.names, self.device).fill(case.tensors() if tensors is None else tensors)
        self.sites = self._backend.sites
        self.keeps = len(builder.attentions)

    @torch.inference_mode()
    def run(self, prompts: Sequence[Sequence[int]], types: Sequence[Sequence[int]] | None = None) -> list[Tensor]:
        """Return each prompt's hidden states, `(tokens, hidden)`; all prompts run in one step."""
        counts = [len(prompt) for prompt in prompts]
        starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        total, device = int(starts[-1]), self.device
        batch = BatchView(
            query_starts=starts,
            seq_lens=np.array(counts, np.int32),
            block_tables=torch.zeros(len(counts), 1, dtype=torch.int32, device=device),
            slots=torch.zeros(total, dtype=torch.int64, device=device),
            max_query_len=max(counts),
            max_seq_len=max(counts),
        )
        step = _Step(
            torch.tensor([token for prompt in prompts for token in prompt], device=device),
            torch.tensor([place for count in counts for place in range(count)], device=device),
            self._backend.plan(batch),
            None if types is None else torch.tensor([one for prompt in types for one in prompt], device=device),
        )
        return list(torch.split(self.model.forward(step).float().cpu(), counts))

    @torch.inference_mode()
    def classify(self, pooled: Tensor) -> Tensor:
        """Return the head's numbers, `(rows, labels)`."""
        numbers: Tensor = self.model.classify(pooled.to(self.device)).float().cpu()
        return numbers


def encoder_cases(subject: Subject) -> list[TinyCase]:
    """Return a case for every tiny family of the kit, and every sample of the plugin, of its architectures."""
    cases = []
    for name in subject.spec(ModelSpec).architectures:
        if name.split("For")[0].removesuffix("Model") in ENCODERS:
            cases.append(_case(name, name, reference_encoder(name)))
    for sample in subject.samples(ModelSample):
        model = reference_encoder(sample.architecture, model_type=sample.model_type, **sample.config)
        cases.append(_case(sample.name, sample.architecture, model))
    return cases


def _case(name: str, architecture: str, model: Any) -> TinyCase:
    return TinyCase(name, architecture, json.loads(model.config.to_json_string()), model)
