"""A model plugin on plain layers: sequences of token ids in, logits out, some tokens of each per step."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import numpy as np
import torch
from torch import Tensor

from core.api.attention import AttentionContext, AttentionPlan, BatchView
from core.api.descriptors import ModelSpec
from core.api.models import Model, WeightRules
from core.api.quantization import QuantContext
from core.api.weights import WeightTensor
from core.layers.builder import Builder
from core.testing.conformance.samples import ModelSample
from core.testing.conformance.subject import Subject
from core.testing.conformance.tools.devices import device_of
from core.testing.conformance.tools.plain import PlainAttention, PlainWeights
from core.testing.conformance.tools.tensors import PlainTensor
from core.testing.tinymodels import FAMILIES, reference_model
from core.worker.loading.fill import WeightFiller
from core.worker.loading.names import NameMap

BLOCK_SIZE = 4
LONGEST = 64
_BLOCKS = 80


@dataclass(frozen=True)
class TinyCase:
    """A tiny random model of one architecture, as transformers has it.

    Attributes:
        config: transformers' configuration as a checkpoint would have it.
        reference: transformers' model, float32.
    """

    name: str
    architecture: str
    config: Mapping[str, Any]
    reference: Any

    def logits(self, tokens: Sequence[int]) -> Tensor:
        """Return what transformers computes, `(tokens, vocabulary)`."""
        with torch.no_grad():
            logits: Tensor = self.reference(torch.tensor([tokens])).logits[0]
        return logits

    def tensors(self) -> list[PlainTensor]:
        """Return the tensors with the names they have in checkpoints; a tied output projection is left out there."""
        tied = set(getattr(self.reference, "_tied_weights_keys", None) or ())
        seen: set[int] = set()
        state = {}
        for name, value in self.reference.state_dict().items():
            if value.data_ptr() in seen and name in tied:
                continue
            seen.add(value.data_ptr())
            state[name] = value
        # transformers gives parts of some families names of its own, and takes them back when it writes a checkpoint.
        revert = getattr(import_module("transformers.core_model_loading"), "revert_weight_conversion", None)
        written = state if revert is None else revert(self.reference, state)
        return [PlainTensor(name, value) for name, value in written.items()]


@dataclass(slots=True)
class _Step:
    token_ids: Tensor
    positions: Tensor
    plan: AttentionPlan


@dataclass(slots=True)
class Track:
    """A sequence: its blocks, and how many of its tokens are in the cache."""

    blocks: list[int] = field(default_factory=list)
    length: int = 0


class Decoder:
    """One model with its own cache."""

    def __init__(self, subject: Subject, case: TinyCase, tensors: Iterable[WeightTensor] | None = None) -> None:
        self.device = device_of(subject)
        dtype = torch.float32
        self._backend = PlainAttention(AttentionContext(self.device, dtype, dtype, BLOCK_SIZE))
        scheme = PlainWeights(QuantContext(self.device, dtype, {}))
        builder = Builder(scheme, self._backend, device=self.device, dtype=dtype, max_positions=LONGEST)
        implementation = subject.impl()
        self.config = settings(case)
        self.model: Model = implementation(self.config, builder)
        self.rules: WeightRules = implementation.weight_rules(self.config)
        self.names = NameMap(self.rules, builder.tied)
        self.filler = WeightFiller(builder.groups, self.names, self.device)
        self.targets = {name for group in builder.groups for name in group.targets()}
        self.attentions = builder.attentions
        self.filler.fill(case.tensors() if tensors is None else tensors)
        for attention in builder.attentions:
            shape = self._backend.kv_layout(attention.site).block_shape
            attention.kv = torch.zeros((_BLOCKS, *shape), dtype=dtype, device=self.device)
        # Scattered, so that a model which counts on neighbouring blocks is found out.
        self._free = np.random.default_rng(0).permutation(np.arange(1, _BLOCKS)).tolist()

    @torch.inference_mode()
    def run(self, work: Sequence[tuple[Track, Sequence[int]]]) -> list[Tensor]:
        """Feed further tokens to each sequence; return the logits of each, `(tokens, vocabulary)`."""
        for sequence, tokens in work:
            sequence.length += len(tokens)
            while len(sequence.blocks) * BLOCK_SIZE < sequence.length:
                sequence.blocks.append(self._free.pop())
        batch, positions = self._view(work)
        ids = torch.tensor([token for _, tokens in work for token in tokens], device=self.device)
        step = _Step(ids, positions, self._backend.plan(batch))
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
        return batch, torch.from_numpy(np.concatenate(positions)).to(self.device)


def settings(case: TinyCase) -> dict[str, Any]:
    """Return the configuration as the loader hands it to a model."""
    return {**case.config, "architectures": [case.architecture]}


def architecture_of(model_type: str) -> str:
    """Return transformers' name of the decoder of a model type; empty if it knows none."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    return str(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(model_type, ""))


def tiny_cases(subject: Subject) -> list[TinyCase]:
    """Return a case for every tiny family of the kit, and every sample of the plugin, of its architectures."""
    wanted = set(subject.spec(ModelSpec).architectures)
    found = []
    for family, (model_type, _) in FAMILIES.items():
        if architecture_of(model_type) in wanted:
            found.append(_case(family, architecture_of(model_type), reference_model(family)))
    for sample in subject.samples(ModelSample):
        if sample.architecture in wanted:
            model = reference_model(model_type=sample.model_type, **sample.config)
            found.append(_case(sample.name, sample.architecture, model))
    return found


def _case(name: str, architecture: str, model: Any) -> TinyCase:
    config = json.loads(model.config.to_json_string())
    return TinyCase(name, architecture, config, model)
