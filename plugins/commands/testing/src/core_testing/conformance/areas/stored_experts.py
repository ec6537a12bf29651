"""Quantization methods on experts: each is read as a layer of its own would be, from tensors of its own or of all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch

from core.api.descriptors import QuantSpec
from core.api.errors import CheckpointError
from core.api.models import WeightRules
from core.api.quantization import LayerSite
from core.api.weights import WeightTensor
from core.worker.loading.fill import WeightFiller
from core.worker.loading.names import NameMap
from core_testing.conformance.areas.quantization import LARGE, title
from core_testing.conformance.outcome import NotApplicable, checks, require
from core_testing.conformance.subject import Subject
from core_testing.conformance.tools.changed import Named, Stacked, Turned
from core_testing.conformance.tools.devices import plainest
from core_testing.conformance.tools.layers import Case, LayerBench, cases
from core_testing.layers import make_layer

EXPERTS = 3
PREFIX = "model.layers.0.mlp.experts"
PART = "up_proj"
RULES = WeightRules(
    experts=(
        (f".experts.{PART}_bias", f".experts.{{}}.{PART}.bias"),
        (f".experts.{PART}", f".experts.{{}}.{PART}.weight"),
    )
)


def experts_are_read_as_layers_of_their_own(subject: Subject) -> None:
    """The weights of all experts, in tensors of each expert, are what layers with these tensors have: biases, too."""
    for case, bench in _benches(subject):
        each = _each(bench)
        given = [tensor for expert, own in enumerate(each) for tensor in _renamed(own, f"{PREFIX}.{expert}.{PART}")]
        _require_equal(case, bench, each, given, "in tensors of each expert")


def experts_in_one_tensor_are_taken_apart(subject: Subject) -> None:
    """So they are where one tensor has all experts in its first dimension."""
    found = False
    for case, bench in _benches(subject):
        each = _each(bench)
        named = all(suffix.startswith(("weight", "bias")) and "." not in suffix for suffix in each[0])
        if not named or any(len(tensor.shape) > 2 for tensor in each[0].values()):
            continue  # nobody stores such tensors of all experts
        found, given = True, []
        for suffix in each[0]:
            name = PART + suffix.removeprefix("weight") if suffix != "bias" else f"{PART}_bias"
            given.append(Stacked([own[suffix] for own in each], f"{PREFIX}.{name}"))
        _require_equal(case, bench, each, given, "in one tensor for all experts")
    if not found:
        raise NotApplicable("its tensors have no names as tensors of all experts")


def _require_equal(
    case: Case, bench: LayerBench, each: Sequence[dict[str, WeightTensor]], given: Sequence[WeightTensor], how: str
) -> None:
    layer = make_layer(bench.format, _whole(bench.site), device=bench.device, dtype=bench.dtype)
    WeightFiller([layer.group], NameMap(RULES, ()), bench.device).fill(given)
    due: dict[str, list[torch.Tensor]] = {}
    for own in each:
        bench.fill(list(_renamed(own, bench.site.prefix)))
        for name, value in bench.layer.params.items():
            due.setdefault(name, []).append(value.clone())
    for name, values in due.items():
        same = torch.equal(layer.params[name], torch.cat(values))
        require(same, f"{title(case, bench.site)}: as experts {how}, their {name} is another than that of layers")


def _benches(subject: Subject) -> Iterator[tuple[Case, LayerBench]]:
    """Yield linear layers of one part that are stored as their like among experts is."""
    found = False
    for case in cases(subject):
        for site in case.sites:
            alone = site.kind == "linear" and len(site.parts) == 1 and not site.parts[0][0]
            if not alone or site.rows * site.in_features >= LARGE:
                continue
            bench = LayerBench(subject, case, site, _dtype(subject))
            if _suffixes(bench, site, "") == _suffixes(bench, _whole(site), f"0.{PART}"):
                found = True
                yield case, bench
    if not found:
        raise NotApplicable("no sample has a linear layer of one part that experts are stored like")


def _whole(site: LayerSite) -> LayerSite:
    """Return the site of experts that have a layer's sizes each."""
    parts = tuple((f"{expert}.{PART}", site.rows) for expert in range(EXPERTS))
    return replace(site, kind="experts", prefix=PREFIX, parts=parts, experts=EXPERTS)


def _suffixes(bench: LayerBench, site: LayerSite, part: str) -> set[str]:
    return {stored.suffix for stored in bench.format.stored(site, part)}


def _each(bench: LayerBench) -> list[dict[str, WeightTensor]]:
    """Return the tensors of each expert by suffix: those of the layer, for every other with its outputs turned round.

    Where outputs share words, these may mean something else in another order: then all experts are alike.
    """
    axes = {stored.suffix: stored.axes[0] for stored in bench.format.stored(bench.site, "")}
    own = bench.tensors("")
    turned: dict[str, WeightTensor] = {suffix: Turned(one, axes.get(suffix)) for suffix, one in own.items()}
    try:
        bench.fill(list(_renamed(turned, bench.site.prefix)))
    except CheckpointError:
        turned = own
    return [turned if expert % 2 else own for expert in range(EXPERTS)]


def _renamed(tensors: dict[str, WeightTensor], module: str) -> Iterator[WeightTensor]:
    return (Named(tensor, f"{module}.{suffix}") for suffix, tensor in tensors.items())


def _dtype(subject: Subject) -> str:
    return plainest(subject.spec(QuantSpec).dtypes)


CHECKS = checks(experts_are_read_as_layers_of_their_own, experts_in_one_tensor_are_taken_apart, on_device=True)
