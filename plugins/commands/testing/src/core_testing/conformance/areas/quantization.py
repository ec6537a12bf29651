"""Quantization methods: what a format reads is what its checkpoints mean, multiplied by the reference product."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from functools import partial

import torch
from torch import Tensor

from core.api.descriptors import QuantSpec
from core.api.forms import Part
from core.api.quantization import LayerSite, QuantContext
from core.ops.products import opened, opens
from core.plugins.drivers import describe
from core_testing.conformance.outcome import Failed, NotApplicable, checks, require
from core_testing.conformance.subject import Subject
from core_testing.conformance.tools.devices import (
    device_of,
    dtype_of,
    largest_difference,
    plainest,
)
from core_testing.conformance.tools.layers import Case, LayerBench, cases, large_plain, verdict_on
from core_testing.conformance.tools.memory import HeldMemory
from core_testing.conformance.tools.options import some_options
from core_testing.conformance.tools.tensors import PlainTensor

TOKENS = (1, 2, 33)
"""Decode and prefill take different paths in many kernels."""

LARGE = 2**20
"""Weights of a layer whose memory says something."""

_OPENED = 1e-5
"""Relative error of values that are opened to float32."""

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
        require(error <= allowed, f"{title(case, site)}: merged differs from separate by {error:.2g}")


def embedding_equals_dequantized(subject: Subject) -> None:
    """An embedding looks up the dequantized rows."""
    for case, site in _sites(subject, "embedding"):
        for dtype in sorted(subject.spec(QuantSpec).dtypes):
            bench = LayerBench(subject, case, site, dtype)
            ids = bench.inputs(17)
            found, expected = bench.layer(ids), case.due(site, ids)
            require(found.dtype == bench.dtype, f"{title(case, site)}: rows are {found.dtype}, due is {bench.dtype}")
            _require_close(case, site, dtype, found, expected)


def lm_head_equals_dequantized(subject: Subject) -> None:
    """The output projection, of its own and tied to an embedding, is the product with the dequantized weight."""
    for case, site in _sites(subject, "lm_head"):
        _require_linear(subject, case, site)
    for case, site in _sites(subject, "embedding"):
        bench = LayerBench(subject, case, site, _dtype(subject))
        head = bench.tied_head()
        x = torch.randn(3, site.in_features, generator=torch.Generator().manual_seed(1)).to(bench.device, bench.dtype)
        _require_close(case, site, _dtype(subject), head(x), case.due(site, x, tied=True))


def loading_again_gives_the_same(subject: Subject) -> None:
    """Weights loaded a second time give the same outputs: a format keeps nothing of what it has read."""
    for case, site in _sites(subject):
        bench = LayerBench(subject, case, site, _dtype(subject))
        x = bench.inputs(4)
        first = bench.layer(x).clone()
        bench.fill()
        require(largest_difference(bench.layer(x), first) == 0, f"{title(case, site)}: loaded again it differs")


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


def parts_have_the_form_that_is_told(subject: Subject) -> None:
    """`form` tells before weights are read what `read` gives: products are chosen by it."""
    for case, site in _sites(subject):
        bench = LayerBench(subject, case, site, _dtype(subject))
        for name, rows in site.parts:
            part, told = bench.read(name), bench.format.form(site, name)
            require(part.form == told, f"{title(case, site)}: form tells {told.key}, read gives {part.form.key}")
            _require_shapes(part, (rows, site.in_features), f"{title(case, site)}: {told.key}")


def every_tensor_is_named(subject: Subject) -> None:
    """`stored` names every tensor that the checkpoint has of a part: none is left without a place."""
    for case, site in _sites(subject):
        bench = LayerBench(subject, case, site, _dtype(subject))
        for name, _ in site.parts:
            named = {one.suffix for one in bench.format.stored(site, name)}
            left = sorted(bench.tensors(name).keys() - named - {"bias"})
            require(not left, f"{title(case, site)}: stored does not name {', '.join(left)} of '{site.module(name)}'")


def parts_open_to_what_is_meant(subject: Subject) -> None:
    """The values of a part, opened to float32, are those of the sample."""
    for case, site in _sites(subject):
        if case.reference is not None:
            continue  # its layers are not the product with weights
        bench = LayerBench(subject, case, site, _dtype(subject))
        stored = [(part, part.decode or partial(opened, part)) for part in map(bench.read, dict(site.parts))]
        found = torch.cat([decode(torch.float32).float().cpu() for _, decode in stored])
        error = _error(found, case.meant(site)[0])
        spec = subject.spec(QuantSpec)
        rounds = spec.on_request or bool(spec.rounds)  # what others have samples of
        allowed = _OPENED + case.tolerance * rounds
        require(error <= allowed, f"{title(case, site)}: opened it differs by {error:.2g}, allowed {allowed:.2g}")


def reading_again_gives_the_same(subject: Subject) -> None:
    """A part that is read twice is equal to the last bit, and reading writes to no tensor of the checkpoint."""
    for case, site in _sites(subject):
        bench = LayerBench(subject, case, site, _dtype(subject))
        for name, _ in site.parts:
            before = {suffix: one.raw().clone() for suffix, one in bench.tensors(name).items()}
            first, second = _tensors(bench.read(name)), _tensors(bench.read(name))
            same = first.keys() == second.keys() and all(_equal(first[key], second[key]) for key in first)
            require(same, f"{title(case, site)}: read again, '{site.module(name)}' is something else")
            kept = all(_equal(one.raw(), before[suffix]) for suffix, one in bench.tensors(name).items())
            require(kept, f"{title(case, site)}: read writes to the tensors of the checkpoint")


def reading_takes_little_memory(subject: Subject) -> None:
    """While a large part is read, no more is held than the part and its values, and a tenth: no copies of them."""
    large = [pair for pair in _sites(subject) if pair[1].kind != "embedding" and _size(pair[1]) >= LARGE]
    if "none" in subject.spec(QuantSpec).methods:
        large += [(case, case.sites[0]) for case in [large_plain()]]
    if not large:
        raise NotApplicable(f"no sample has a layer of at least {LARGE} weights")
    for case, site in large:
        bench = LayerBench(subject, case, site, _dtype(subject))
        for name, rows in site.parts:
            bench.read(name)
            with HeldMemory() as held:
                part = bench.read(name)
            own = sum(one.nbytes for one in _tensors(part).values())
            allowed = int(1.1 * (own + rows * site.in_features * bench.dtype.itemsize))
            found = f"reading '{site.module(name)}' holds {held.peak:,} bytes at a time, allowed {allowed:,}"
            require(held.peak <= allowed, f"{title(case, site)}: {found}")


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


def _require_linear(subject: Subject, case: Case, site: LayerSite) -> None:
    for dtype in sorted(subject.spec(QuantSpec).dtypes):
        bench = LayerBench(subject, case, site, dtype)
        for tokens in TOKENS:
            x = bench.inputs(tokens)
            _require_close(case, site, dtype, bench.layer(x), case.due(site, x))


def _require_close(case: Case, site: LayerSite, dtype: str, found: Tensor, expected: Tensor) -> None:
    shape = tuple(expected.shape)
    require(tuple(found.shape) == shape, f"{title(case, site)} gives shape {tuple(found.shape)}, due is {shape}")
    error, allowed = _error(found, expected), _allowed(case, dtype)
    tokens = len(expected)
    where = f"{title(case, site)}, {dtype}, {tokens} token{'s' if tokens != 1 else ''}"
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


def title(case: Case, site: LayerSite) -> str:
    """Return what is checked, for messages."""
    return f"{case.name}: {site.kind} {site.prefix}"


def _size(site: LayerSite) -> int:
    return site.in_features * sum(rows for _, rows in site.parts)


def _require_shapes(part: Part, sizes: tuple[int, int], where: str) -> None:
    """Hold the tensors of a part against its form."""
    form = part.form
    shared = [-(-size // group) if group else 1 for size, group in zip(sizes, (form.outputs, form.inputs), strict=True)]
    if opens(form):
        require(tuple(part.codes.shape) == sizes, f"{where}: codes are {tuple(part.codes.shape)}, due is {sizes}")
    else:
        require(part.decode is not None, f"{where}: neither core nor the format opens these codes")
    for name, one, due in (("scales", part.scales, None), ("zeros", part.zeros, form.zeros)):
        found = None if one is None else list(one.shape)
        require(found in (None, shared), f"{where}: {name} are {found}, due is {shared}")
        require(due is None or due == (one is not None), f"{where}: {name} are {'not ' * (one is None)}there")
    require(form.ordered == (part.group_of is not None), f"{where}: group_of and the form differ")


def _tensors(part: Part) -> dict[str, Tensor]:
    every = {one.name: getattr(part, one.name) for one in fields(part)}
    return {name: value for name, value in every.items() if isinstance(value, Tensor)}


def _equal(first: Tensor, second: Tensor) -> bool:
    """Whether two tensors are equal to the last bit: values that are no numbers, too."""
    same = first.dtype == second.dtype and first.shape == second.shape
    return same and torch.equal(first.flatten().view(torch.uint8), second.flatten().view(torch.uint8))


CHECKS = checks(
    linear_equals_dequantized,
    merged_parts_equal_separate_parts,
    embedding_equals_dequantized,
    lm_head_equals_dequantized,
    loading_again_gives_the_same,
    other_weights_replace_the_first,
    parts_have_the_form_that_is_told,
    every_tensor_is_named,
    parts_open_to_what_is_meant,
    reading_again_gives_the_same,
    reading_takes_little_memory,
    samples_are_taken,
    what_it_cannot_read_is_refused_when_chosen,
    on_device=True,
)
