"""Quantization methods: what a layer computes is what its dequantized weights compute."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from core.api.descriptors import QuantSpec
from core.api.quantization import LayerSite, QuantContext
from core.plugins.drivers import describe
from core.testing.conformance.outcome import Failed, Level, NotApplicable, checks, require
from core.testing.conformance.subject import Subject
from core.testing.conformance.tools.devices import (
    device_of,
    dtype_of,
    largest_difference,
    plainest,
    wait,
)
from core.testing.conformance.tools.layers import Case, LayerBench, cases, verdict_on
from core.testing.conformance.tools.options import some_options
from core.testing.conformance.tools.tensors import PlainTensor
from core.testing.conformance.tools.timing import speed_ratio

TOKENS = (1, 2, 33)
"""Decode and prefill take different paths in many kernels."""

LARGE = 2**20
"""Weights of a layer whose speed says something."""

_UNKNOWN = "unknown-to-everybody"

_ROUNDING = {"float32": 2e-3, "float16": 1e-2, "bfloat16": 3e-2}


def linear_equals_dequantized(subject: Subject) -> None:
    """Linear layers, with and without bias, in every activation dtype: relative error within the dtype's."""
    for case, site in _sites(subject, "linear"):
        if len(site.parts) == 1:
            _require_linear(subject, case, site)


def merged_parts_equal_separate_parts(subject: Subject) -> None:
    """Several checkpoint tensors in one layer give what a layer for each of them gives."""
    for case, site in _sites(subject, "linear"):
        if len(site.parts) == 1:
            continue
        _require_linear(subject, case, site)
        whole = LayerBench(subject, case, site, _dtype(subject))
        x = whole.inputs(5)
        parts = [LayerBench(subject, case, _alone(site, part), _dtype(subject)).layer(x) for part in site.parts]
        error, allowed = _error(whole.layer(x), torch.cat(parts, 1)), _allowed(case, _dtype(subject))
        require(error <= allowed, f"{_title(case, site)}: merged differs from separate by {error:.2g}")


def embedding_equals_dequantized(subject: Subject) -> None:
    """An embedding looks up the dequantized rows."""
    for case, site in _sites(subject, "embedding"):
        for dtype in sorted(subject.spec(QuantSpec).dtypes):
            bench = LayerBench(subject, case, site, dtype)
            ids = bench.inputs(17)
            found, expected = bench.layer(ids), case.due(site, ids)
            require(found.dtype == bench.dtype, f"{_title(case, site)}: rows are {found.dtype}, due is {bench.dtype}")
            _require_close(case, site, dtype, found, expected)


def lm_head_equals_dequantized(subject: Subject) -> None:
    """The output projection, of its own and tied to an embedding, is the product with the dequantized weight."""
    for case, site in _sites(subject, "lm_head"):
        _require_linear(subject, case, site)
    for case, site in _sites(subject, "embedding"):
        bench = LayerBench(subject, case, site, _dtype(subject))
        head = bench.tied_head(subject)
        x = torch.randn(3, site.in_features, generator=torch.Generator().manual_seed(1)).to(bench.device, bench.dtype)
        _require_close(case, site, _dtype(subject), head(x), case.due(site, x, tied=True))


def loading_again_gives_the_same(subject: Subject) -> None:
    """Weights loaded a second time give the same outputs: `finalize` keeps no state."""
    for case, site in _sites(subject):
        bench = LayerBench(subject, case, site, _dtype(subject))
        x = bench.inputs(4)
        first = bench.layer(x).clone()
        bench.fill()
        require(largest_difference(bench.layer(x), first) == 0, f"{_title(case, site)}: loaded again it differs")


def other_weights_replace_the_first(subject: Subject) -> None:
    """Other weights loaded into the same layer are the ones that count from then on."""
    for case, site in _sites(subject):
        if not case.plain:
            continue
        bench = LayerBench(subject, case, site, _dtype(subject))
        x = bench.inputs(4)
        before = bench.layer(x).clone()
        bench.fill([PlainTensor(name, -2 * value) for name, value in case.values.items()])
        _require_close(case, site, _dtype(subject), bench.layer(x), -2 * before.float().cpu())


def finalize_is_pure(subject: Subject) -> None:
    """`finalize` leaves the tensors that it is given as they are, and gives the same each time."""
    for case, site in _sites(subject):
        bench = LayerBench(subject, case, site, _dtype(subject))
        raw = bench.stored()
        kept = {name: value.clone() for name, value in raw.items()}
        outputs = [bench.quant.finalize(dict(raw)) for _ in range(2)]
        changed = [name for name in raw if not torch.equal(raw[name], kept[name])]
        require(not changed, f"{_title(case, site)}: finalize writes to {', '.join(changed)}")
        same = outputs[0].keys() == outputs[1].keys()
        same = same and all(torch.equal(outputs[0][name], outputs[1][name]) for name in outputs[0])
        require(same, f"{_title(case, site)}: finalize of the same parameters gives something else the second time")


def apply_leaves_its_inputs_alone(subject: Subject) -> None:
    """Applying a layer changes neither its input nor its parameters."""
    for case, site in _sites(subject):
        bench = LayerBench(subject, case, site, _dtype(subject))
        x = bench.inputs(4)
        before = [value.clone() for value in (x, *bench.layer.params.values())]
        bench.layer(x)
        same = all(torch.equal(old, new) for old, new in zip(before, (x, *bench.layer.params.values())))
        require(same, f"{_title(case, site)}: apply writes to its input or to its parameters")


def final_bytes_are_held(subject: Subject) -> None:
    """`final_bytes` tells no more than `finalize` gives: a start that would have worked is not refused."""
    told = 0
    for case, site in _sites(subject):
        bench = LayerBench(subject, case, site, _dtype(subject))
        tell: Callable[[], int] | None = getattr(bench.quant, "final_bytes", None)
        if tell is None:
            continue
        told += 1
        held = sum(value.nbytes for value in bench.quant.finalize(bench.stored()).values())
        require(tell() <= held, f"{_title(case, site)}: final_bytes tells {tell()}, finalize gives {held} bytes")
    if not told:
        raise NotApplicable("its layers do not tell their size")


def samples_are_taken(subject: Subject) -> None:
    """`refine` lets every checkpoint pass that the plugin has samples of."""
    every = list(cases(subject))
    if subject.spec(QuantSpec).refine is None:
        raise NotApplicable("it has no refine")
    for case in every:
        verdict = verdict_on(subject, case.config)
        require(verdict.ok, f"{case.name}: refine refuses it: {'; '.join(verdict.reasons)}")


def what_it_cannot_read_is_refused_when_chosen(subject: Subject) -> None:
    """A description with one unknown value is refused by `refine`, or read: a start does not fail after the choice."""
    described = [case for case in cases(subject) if case.config]
    if not described:
        raise NotApplicable("its checkpoints describe nothing")
    for case in described:
        for path, config in _altered(case.config):
            if verdict_on(subject, config).ok:
                _require_scheme(subject, config, f"{case.name}, {path} unknown")


def _require_scheme(subject: Subject, config: Mapping[str, object], what: str) -> None:
    device, dtype = device_of(subject, subject.spec(QuantSpec).needs), dtype_of(_dtype(subject))
    try:
        subject.impl()(QuantContext(device, dtype, config, some_options(subject)))
    except Exception as error:
        raise Failed(f"{what}: refine lets it pass, but the implementation refuses it: {describe(error)}") from error


def _altered(config: Mapping[str, object], path: str = "") -> Iterator[tuple[str, dict[str, object]]]:
    """Yield copies of a description, each with one value that nobody knows, and where that is."""
    for key, value in config.items():
        inner = value if isinstance(value, Mapping) else {}
        for name, changed in _altered(inner, f"{path}{key}."):
            yield name, {**config, key: changed}
        if not inner and isinstance(value, (str, int, float)):
            yield f"{path}{key}", {**config, key: _UNKNOWN}


def faster_than_reference(subject: Subject) -> None:
    """A large layer is applied to one token faster than by the reference method for the same checkpoints."""
    other = _reference(subject)
    large = [pair for pair in _sites(subject) if pair[1].kind != "embedding" and _size(pair[1]) >= LARGE]
    if not large:
        raise NotApplicable(f"no sample has a layer of at least {LARGE} weights")
    for case, site in large:
        works = []
        for one in (subject, other):
            bench = LayerBench(one, case, site, _dtype(subject))
            works.append(partial(_apply_and_wait, bench, bench.inputs(1)))
        ratio = speed_ratio(*works)
        require(ratio > 1, f"{_title(case, site)}: it runs at {ratio:.2f} times the speed of '{other.entry.name}'")


def _apply_and_wait(bench: LayerBench, x: Tensor) -> None:
    bench.layer(x)
    wait(bench.device)


def _require_linear(subject: Subject, case: Case, site: LayerSite) -> None:
    for dtype in sorted(subject.spec(QuantSpec).dtypes):
        bench = LayerBench(subject, case, site, dtype)
        for tokens in TOKENS:
            x = bench.inputs(tokens)
            _require_close(case, site, dtype, bench.layer(x), case.due(site, x))


def _require_close(case: Case, site: LayerSite, dtype: str, found: Tensor, expected: Tensor) -> None:
    shape = tuple(expected.shape)
    require(tuple(found.shape) == shape, f"{_title(case, site)} gives shape {tuple(found.shape)}, due is {shape}")
    error, allowed = _error(found, expected), _allowed(case, dtype)
    tokens = len(expected)
    where = f"{_title(case, site)}, {dtype}, {tokens} token{'s' if tokens != 1 else ''}"
    require(error <= allowed, f"{where}: relative error {error:.2g}, allowed {allowed:.2g}")


def _error(found: Tensor, expected: Tensor) -> float:
    """Return the relative error in the 2-norm; infinite for what is not finite."""
    expected = expected.detach().float().cpu()
    difference = (found.detach().float().cpu() - expected).nan_to_num(float("inf"))
    return float(difference.norm() / expected.norm().clamp_min(1e-9))


def _allowed(case: Case, dtype: str) -> float:
    return _ROUNDING.get(dtype, 3e-2) + case.tolerance


def _sites(subject: Subject, kind: str = "") -> Iterator[tuple[Case, LayerSite]]:
    pairs = [(case, site) for case in cases(subject) for site in case.sites if kind in ("", site.kind)]
    if not pairs:
        raise NotApplicable(f"no sample has a layer of kind {kind}")
    yield from pairs


def _dtype(subject: Subject) -> str:
    return plainest(subject.spec(QuantSpec).dtypes)


def _alone(site: LayerSite, part: tuple[str, int]) -> LayerSite:
    name, rows = part
    return replace(site, prefix=f"{site.prefix}.{name}", parts=(("", rows),))


def _title(case: Case, site: LayerSite) -> str:
    return f"{case.name}: {site.kind} {site.prefix}"


def _size(site: LayerSite) -> int:
    return site.in_features * sum(rows for _, rows in site.parts)


def _reference(subject: Subject) -> Subject:
    """Return the plainest other method that reads the same checkpoints."""
    spec = subject.spec(QuantSpec)
    others = [replace(subject, entry=entry) for entry in subject.catalogue.entries(subject.entry.group)]
    others = [one for one in others if one.descriptor.band < spec.band and spec.methods & one.spec(QuantSpec).methods]
    if not others:
        raise NotApplicable("no plainer method for the same checkpoints is installed")
    return min(others, key=lambda one: one.descriptor.band)


CHECKS = (
    *checks(
        linear_equals_dequantized,
        merged_parts_equal_separate_parts,
        embedding_equals_dequantized,
        lm_head_equals_dequantized,
        loading_again_gives_the_same,
        other_weights_replace_the_first,
        finalize_is_pure,
        apply_leaves_its_inputs_alone,
        final_bytes_are_held,
        samples_are_taken,
        what_it_cannot_read_is_refused_when_chosen,
        on_device=True,
    ),
    *checks(faster_than_reference, level=Level.L3),
)
