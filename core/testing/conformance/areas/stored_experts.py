"""Quantization methods on experts: each is read as a layer of its own would be, from tensors of its own or of all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch

from core.api.descriptors import QuantSpec
from core.api.models import WeightRules
from core.api.quantization import LayerSite, QuantContext
from core.api.weights import WeightTensor
from core.testing.conformance.areas.quantization import LARGE, title
from core.testing.conformance.outcome import NotApplicable, checks, require
from core.testing.conformance.subject import Subject
from core.testing.conformance.tools.changed import Named, Stacked, Turned
from core.testing.conformance.tools.devices import plainest
from core.testing.conformance.tools.layers import Case, LayerBench, cases
from core.testing.conformance.tools.options import some_options
from core.testing.layers import make_layer
from core.worker.loading.fill import WeightFiller
from core.worker.loading.names import NameMap

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
    for case, site in _sites(subject):
        each = _each(case, site, LayerBench(subject, case, site, _dtype(subject)))
        given = [tensor for expert, own in enumerate(each) for tensor in _renamed(own, f"{PREFIX}.{expert}.{PART}")]
        _require_equal(subject, case, site, each, given, "in tensors of each expert")


def experts_in_one_tensor_are_taken_apart(subject: Subject) -> None:
    """So they are where one tensor has all experts in its first dimension."""
    found = False
    for case, site in _sites(subject):
        each = _each(case, site, LayerBench(subject, case, site, _dtype(subject)))
        named = all(suffix.startswith(("weight", "bias")) and "." not in suffix for suffix in each[0])
        if not named or any(len(tensor.shape) > 2 for tensor in each[0].values()):
            continue  # nobody stores such tensors of all experts
        found, given = True, []
        for suffix in each[0]:
            name = PART + suffix.removeprefix("weight") if suffix != "bias" else f"{PART}_bias"
            given.append(Stacked([own[suffix] for own in each], f"{PREFIX}.{name}"))
        _require_equal(subject, case, site, each, given, "in one tensor for all experts")
    if not found:
        raise NotApplicable("its tensors have no names as tensors of all experts")


def _require_equal(
    subject: Subject,
    case: Case,
    site: LayerSite,
    each: Sequence[dict[str, WeightTensor]],
    given: Sequence[WeightTensor],
    how: str,
) -> None:
    bench = LayerBench(subject, case, site, _dtype(subject))
    form = subject.impl()(QuantContext(bench.device, bench.dtype, case.config, some_options(subject)))
    parts = tuple((f"{expert}.{PART}", site.rows) for expert in range(EXPERTS))
    whole = replace(site, kind="experts", prefix=PREFIX, parts=parts, experts=EXPERTS)
    layer = make_layer(form, whole, device=bench.device, dtype=bench.dtype)
    WeightFiller([layer.group], NameMap(RULES, ()), bench.device).fill(given)
    due: dict[str, list[torch.Tensor]] = {}
    for own in each:
        bench.fill(list(_renamed(own, site.prefix)))
        for name, value in bench.layer.params.items():
            due.setdefault(name, []).append(value.clone())
    for name, values in due.items():
        same = torch.equal(layer.params[name], torch.cat(values))
        require(same, f"{title(case, site)}: as experts {how}, their {name} is another than that of layers")


def _sites(subject: Subject) -> Iterator[tuple[Case, LayerSite]]:
    pairs = [
        (case, site)
        for case in cases(subject)
        for site in case.sites
        if site.kind == "linear" and len(site.parts) == 1 and not site.parts[0][0]
        if site.rows * site.in_features < LARGE
    ]
    if not pairs:
        raise NotApplicable("no sample has a linear layer of one part")
    yield from pairs


def _each(case: Case, site: LayerSite, bench: LayerBench) -> list[dict[str, WeightTensor]]:
    """Return the tensors of each expert by suffix: those of the layer, their outputs turned round for every other."""
    axes = {stored.suffix: stored.axes[0] for stored in bench.format.stored(site, "")}
    own = bench.tensors("")
    return [
        {suffix: Turned(one, axes.get(suffix)) if expert % 2 else one for suffix, one in own.items()}
        for expert in range(EXPERTS)
    ]


def _renamed(tensors: dict[str, WeightTensor], module: str) -> Iterator[WeightTensor]:
    return (Named(tensor, f"{module}.{suffix}") for suffix, tensor in tensors.items())


def _dtype(subject: Subject) -> str:
    return plainest(subject.spec(QuantSpec).dtypes)


CHECKS = checks(experts_are_read_as_layers_of_their_own, experts_in_one_tensor_are_taken_apart, on_device=True)
