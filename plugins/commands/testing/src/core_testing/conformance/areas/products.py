"""Products: what the reference product gives, for every form that the descriptor names and core can open."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from core.api.descriptors import KernelSpec
from core.api.forms import PLAIN
from core_testing.conformance.outcome import NotApplicable, checks, require
from core_testing.conformance.subject import Subject
from core_testing.conformance.tools.devices import plainest
from core_testing.conformance.tools.kernel_bench import same_bits
from core_testing.conformance.tools.parts import plain_part
from core_testing.conformance.tools.product_bench import EXPERT_PARTS, ProductBench, forms_of

TOKENS = (0, 1, 2, 33)
"""None at all; and decode and prefill, which take different paths in many kernels."""

_COARSEST = 0.25
"""Relative error of plain numbers that are rounded to four bits, and then some."""


def forms_match_the_reference(subject: Subject) -> None:
    """Every form that it takes, in every dtype, for no token, for one and for several, with and without a bias."""
    for bench in _benches(subject):
        parts = bench.parts()
        params = bench.filled(parts)
        for tokens in TOKENS:
            x = bench.inputs(tokens)
            before = [one.clone() for one in x]
            bench.require_close(bench.apply(x, params), bench.due(x, parts), f"{tokens} tokens")
            require(all(map(same_bits, x, before)), f"{bench.where}: it changes its input")


def parts_of_different_forms_match_the_reference(subject: Subject) -> None:
    """A layer whose parts have different forms, each of which it takes: plain ones beside others, and pairs."""
    if subject.spec(KernelSpec).op in ("lookup", *EXPERT_PARTS):
        raise NotApplicable("an embedding has one part, and experts are all alike")
    dtype = _dtype(subject)
    forms = list(forms_of(subject, dtype))
    if len(forms) < 2:
        raise NotApplicable("it takes one form")
    for first, second in zip(forms, (*forms[1:], forms[0])):
        bench = ProductBench(subject, (first, second, first), dtype)
        parts = bench.parts()
        x = bench.inputs(5)
        bench.require_close(bench.apply(x, bench.filled(parts)), bench.due(x, parts), "parts of both")


def parts_come_in_any_order(subject: Subject) -> None:
    """Packing is repeatable: into other memory, and with the parts in another order, it writes equal bytes."""
    for bench in _benches(subject, _dtype(subject)):
        parts = bench.parts()
        first = bench.pack(parts)
        for order in (range(len(parts)), range(len(parts) - 1, -1, -1)):
            again = bench.pack(bench.parts(), list(order))
            same = all(same_bits(one, again[name]) for name, one in first.items())
            require(same, f"{bench.where}: packed again, with parts in the order {list(order)}, bytes differ")


def new_weights_take_the_place_of_old_ones(subject: Subject) -> None:
    """Other weights packed into other parameters are used by them alone: a product keeps sizes only."""
    for bench in _benches(subject, _dtype(subject)):
        old, new, x = bench.parts(), bench.parts(seed=1), bench.inputs(3)
        before = bench.filled(old)
        after = bench.filled(new)
        bench.require_close(bench.apply(x, after), bench.due(x, new), "new weights")
        bench.require_close(bench.apply(x, before), bench.due(x, old), "old weights, after new ones")


def plain_numbers_are_rounded_to_the_form(subject: Subject) -> None:
    """Plain numbers of an update are taken by layers of every form."""
    for bench in _benches(subject, _dtype(subject)):
        rng = torch.Generator().manual_seed(5)
        rows = [torch.randn(count, bench.place.site.in_features, generator=rng) for _, count in bench.place.site.parts]
        parts = [plain_part(values.to(bench.place.device)) for values in rows]
        for part, like in zip(parts, bench.parts()):
            part.bias = like.bias
        x = bench.inputs(3)
        bench.tolerance = max(bench.tolerance, 0.0 if bench.place.forms[0] == PLAIN else _COARSEST)
        bench.require_close(bench.apply(x, bench.filled(parts)), bench.due(x, parts), "plain numbers")


def finish_changes_nothing_that_it_is_given(subject: Subject) -> None:
    """`finish` leaves the parameters that it is given as they are, and gives equal ones for equal ones."""
    for bench in _benches(subject, _dtype(subject)):
        given = bench.pack(bench.parts())
        before = {name: one.clone() for name, one in given.items()}
        found = [bench.product.finish(dict(given)) for _ in range(2)]
        intact = all(same_bits(one, before[name]) for name, one in given.items())
        require(intact, f"{bench.where}: finish() writes to what it is given")
        one, other = found
        same = one.keys() == other.keys() and all(same_bits(one[name], other[name]) for name in one)
        require(same, f"{bench.where}: finish() gives something else the second time")


def kept_parameters_serve_another(subject: Subject) -> None:
    """Of a product that names a layout, copies of final parameters serve another object of the same place.

    Bit for bit, under the names and dtypes, and within the sizes, that `sizes` tells.
    """
    told = False
    for bench in _benches(subject):
        if not bench.product.layout:
            continue
        told = True
        params, sizes, x = bench.filled(bench.parts()), bench.product.sizes(), bench.inputs(5)
        require(params.keys() == sizes.keys(), f"{bench.where}: finish() gives {sorted(params)}, of {sorted(sizes)}")
        for name, (shape, dtype) in sizes.items():
            one = params[name]
            fits = one.dtype == dtype and one.dim() == len(shape) and one.numel() <= math.prod(shape)
            require(fits, f"{bench.where}: finish() gives '{name}' {tuple(one.shape)} {one.dtype}, of {shape} {dtype}")
        other = bench.again()
        require(other.product.layout == bench.product.layout, f"{bench.where}: its layout is another the second time")
        found = other.apply(x, {name: one.clone() for name, one in params.items()})
        require(
            same_bits(found, bench.apply(x, params)), f"{bench.where}: other numbers from parameters that were kept"
        )
    if not told:
        raise NotApplicable("it names no layout, so its parameters are never kept")


def rows_of_activations_may_lie_apart(subject: Subject) -> None:
    """Activations may be a slice of something wider: the same numbers come out, bit for bit."""
    for bench in _benches(subject, _dtype(subject)):
        params, (x, *others) = bench.filled(bench.parts()), bench.inputs(7)
        wide = torch.full((len(x), x.shape[1] + 64), float("nan"), dtype=x.dtype, device=x.device)
        apart = wide[:, 32 : 32 + x.shape[1]].copy_(x)
        same = same_bits(bench.apply((apart, *others), params), bench.apply((x, *others), params))
        require(same, f"{bench.where}: other numbers where rows lie apart")


def rows_are_looked_up(subject: Subject) -> None:
    """Of an embedding, rows by token id, in the compute dtype: repeated ones, the first, the last, and none."""
    if subject.spec(KernelSpec).op != "lookup":
        raise NotApplicable("it looks nothing up")
    for bench in _benches(subject):
        parts = bench.parts()
        params, weight = bench.filled(parts), parts[0].dense(torch.float32)
        for ids in ([len(weight) - 1, 0, 7, 7], []):
            chosen = torch.tensor(ids, dtype=torch.int64, device=bench.place.device)
            found = bench.product.look_up(chosen, params)
            require(found.dtype == bench.place.dtype, f"{bench.where}: rows are {found.dtype}")
            bench.require_close(found, weight[chosen], f"rows {ids}")


def _benches(subject: Subject, only: str | None = None) -> Iterator[ProductBench]:
    """Yield a bench for each form, with a bias and without: in one dtype, or in every one that it declares."""
    for dtype in sorted(subject.spec(KernelSpec).dtypes) if only is None else (only,):
        for form in forms_of(subject, dtype):
            yield ProductBench(subject, (form, form, form), dtype)
            if only is None:
                yield ProductBench(subject, (form,), dtype, bias=False)


def _dtype(subject: Subject) -> str:
    return plainest(subject.spec(KernelSpec).dtypes)


CHECKS = checks(
    forms_match_the_reference,
    parts_of_different_forms_match_the_reference,
    parts_come_in_any_order,
    new_weights_take_the_place_of_old_ones,
    plain_numbers_are_rounded_to_the_form,
    finish_changes_nothing_that_it_is_given,
    kept_parameters_serve_another,
    rows_of_activations_may_lie_apart,
    rows_are_looked_up,
    on_device=True,
)
