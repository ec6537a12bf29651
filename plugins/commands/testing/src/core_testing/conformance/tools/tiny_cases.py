"""Tiny models of a plugin's architectures on plain layers, beside transformers' models with the same random weights."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property, wraps
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from core.api.attention import AttentionContext, AttentionSite, CompressedSite, LatentSite, PickSite
from core.api.descriptors import ModelSpec
from core.api.errors import CheckpointError
from core.api.quantization import QuantContext
from core.api.ranks import Ranks
from core.api.rotary import RopeConfig
from core.api.shapes import ModelShape
from core.api.weights import CheckpointInfo, WeightTensor
from core.layers.builder import Builder
from core.options.model import ModelOptions
from core.selection.overrides import overridden
from core.worker.loading.fill import WeightFiller
from core.worker.loading.names import NameMap
from core_testing.conformance.outcome import Failed, Unavailable, require, require_core_error
from core_testing.conformance.samples import ModelSample
from core_testing.conformance.subject import Subject
from core_testing.conformance.tools.devices import device_of, largest_difference
from core_testing.conformance.tools.plain import PlainAttention, PlainWeights
from core_testing.conformance.tools.tensors import PlainTensor

Site = AttentionSite | LatentSite | CompressedSite

BLOCK_SIZE = 4
LONGEST = 96
INDIVISIBLE = frozenset({"CORE-M183", "CORE-M184"})
"""Errors of a model that cannot be divided among so many ranks."""


@dataclass(frozen=True)
class TinyCase:
    """A tiny random model of one architecture.

    Attributes:
        reference: transformers' model, float32.
    """

    name: str
    architecture: str
    reference: Any

    @cached_property
    def config(self) -> dict[str, Any]:
        """transformers' configuration as the loader hands it to a model."""
        return {**json.loads(self.reference.config.to_json_string()), "architectures": [self.architecture]}

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


class LoadedModel:
    """A plugin's model with a case's weights, on the plainest layers there are.

    Args:
        tensors: Instead of the case's own.
        ranks, all_reduce: As of `Builder`.

    Raises:
        CheckpointError: They do not fill the model.
    """

    def __init__(
        self,
        subject: Subject,
        case: TinyCase,
        tensors: Iterable[WeightTensor] | None = None,
        *,
        ranks: Ranks | None = None,
        all_reduce: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        self.device, dtype = device_of(subject), torch.float32
        self.backend = PlainAttention(AttentionContext(self.device, dtype, dtype, BLOCK_SIZE))
        weights = PlainWeights(QuantContext(self.device, dtype, {}))
        builder = Builder(
            weights,
            self.backend,
            device=self.device,
            dtype=dtype,
            max_positions=LONGEST,
            ranks=ranks,
            all_reduce=all_reduce,
        )
        implementation = subject.impl()
        self.model: Any = implementation(case.config, builder)
        self.names = NameMap(implementation.weight_rules(case.config), builder.left_out)
        self.targets = {name for group in builder.groups for name in group.targets()}
        self.attentions, self.states = builder.attentions, builder.states
        heads = [one.site for one in builder.attentions if not isinstance(one.site, PickSite)]
        self.sites: list[Site] = [*heads, *self.backend.encoders]
        self.ropes = [config for config, _ in builder.ropes]
        WeightFiller(builder.groups, self.names, self.device).fill(case.tensors() if tensors is None else tensors)


def for_each(
    cases: Callable[[Subject], list[TinyCase]],
) -> Callable[[Callable[[Subject, TinyCase], None]], Callable[[Subject], None]]:
    """Return what makes a check of one tiny model a check of all `cases`; the failure names every model that fails."""

    def decorate(check: Callable[[Subject, TinyCase], None]) -> Callable[[Subject], None]:
        @wraps(check)
        def run(subject: Subject) -> None:
            found, faults = cases(subject), []
            device_of(subject)
            for case in found:
                try:
                    check(subject, case)
                except (Failed, CheckpointError) as fault:
                    faults.append(f"{case.name}: {fault}")
            require(not faults, "; ".join(faults))

        return run

    return decorate


def sampled_cases(subject: Subject, make: Callable[[ModelSample], Any]) -> list[TinyCase]:
    """Return a case for every sample of the plugin, of an architecture that it declares; `make` makes the reference."""
    wanted = subject.spec(ModelSpec).architectures
    samples = [sample for sample in subject.samples(ModelSample) if sample.architecture in wanted]
    return [TinyCase(sample.name, sample.architecture, make(sample)) for sample in samples]


def require_every_architecture(subject: Subject, cases: Iterable[TinyCase]) -> None:
    """Raise `Unavailable` unless there is a case for each architecture of the descriptor."""
    known = {case.architecture for case in cases}
    missing = [name for name in subject.spec(ModelSpec).architectures if name not in known]
    if missing:
        raise Unavailable(subject.wants(ModelSample, f"no tiny configuration for {', '.join(missing)}"))


def shape_of(subject: Subject, case: TinyCase, scaling: Mapping[str, Any] | None = None) -> ModelShape:
    """Return what the descriptor's `shape` says of a case.

    Args:
        scaling: Rotary scaling in place of the case's own.

    Raises:
        CheckpointError: The plugin, or core, refuses the configuration.
    """
    stored = CheckpointInfo(path="", format="", architecture=case.architecture, config=case.config)
    checkpoint = overridden(stored, ModelOptions(rope_scaling=dict(scaling or {})))
    shape = subject.load(subject.spec(ModelSpec).shape)(checkpoint.config)
    if not isinstance(shape, ModelShape):
        raise Failed(f"shape gives a {type(shape).__name__}")
    for rope in shape.ropes:
        rope.require_known()
    return shape


def require_shape(shape: ModelShape, due: Mapping[str, int], used: Set[str], ropes: Iterable[RopeConfig]) -> None:
    """Require a shape's sizes, and that it names the attention features and rotary embeddings that the model uses."""
    wrong = [
        f"{name} is {getattr(shape, name)}, not {size}" for name, size in due.items() if getattr(shape, name) != size
    ]
    require(not wrong, "; ".join(wrong))
    lacks = sorted(used - shape.features)
    require(not lacks, f"the model uses {', '.join(lacks)}, but its shape's features do not say so")
    unnamed = [rope for rope in ropes if rope not in shape.ropes]
    require(not unnamed, f"the model asks for a rotary embedding that its shape's ropes do not name: {unnamed[:1]}")


def require_divided(size: int, found: Sequence[Sequence[Site]], whole: Sequence[Site]) -> None:
    """Require that the attention of each of `size` ranks has its share of the heads."""
    for sites in found:
        heads = [site.num_heads * size for site in sites]
        due = [site.num_heads for site in whole]
        require(
            heads == due, f"on each of {size} ranks its layers have {[site.num_heads for site in sites]} of {due} heads"
        )


def require_close(found: Tensor, expected: Tensor, tolerance: float, what: str) -> None:
    """Require numbers within `tolerance` of the greatest expected one."""
    error, allowed = largest_difference(found, expected), tolerance * float(expected.abs().max())
    require(error <= allowed, f"{what} is off by {error:.2g}, allowed {allowed:.2g}")


def require_damage_refused(
    load: Callable[[list[PlainTensor]], object], tensors: list[PlainTensor], places: Iterable[int], extra: str
) -> None:
    """Require that `load` refuses the tensors without the one at each of `places`, and with one called `extra`."""
    damaged = [(f"without {tensors[place].name}", tensors[:place] + tensors[place + 1 :]) for place in places]
    damaged.append((f"with a tensor {extra}", [*tensors, PlainTensor(extra, torch.zeros(4, 4))]))
    for how, left in damaged:
        require_core_error(load, left, what=f"loading a checkpoint {how}", kind=CheckpointError)
