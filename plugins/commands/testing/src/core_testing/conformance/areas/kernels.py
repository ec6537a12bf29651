"""Kernels: the reference form's values for every size, dtype and memory layout, and no trace besides them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from core.api.descriptors import KernelSpec
from core.ops.registry import REGISTRY
from core_testing.conformance.outcome import Level, NotApplicable, checks, require
from core_testing.conformance.subject import Subject
from core_testing.conformance.tools.devices import plainest, wait
from core_testing.conformance.tools.generate import for_all, need_hypothesis
from core_testing.conformance.tools.kernel_bench import (
    Guarded,
    KernelBench,
    call,
    copies,
    memory_of,
    outputs_of,
    same_bits,
    shape_of,
    views,
    within_rounding,
)
from core_testing.conformance.tools.timing import speed_ratio

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

ROWS = (1, 2, 3, 7, 16, 33, 61)
_ANY_ROWS = (0, 1, 3, 17, 64, 257, 1031)
_SPECIAL = (0.0, -0.0, 1e-30, -1e-30, 30.0, -30.0, 100.0, -100.0, float("inf"), -float("inf"), float("nan"))


def declared_sizes_exist(subject: Subject) -> None:
    """The operation is one of core's or of a sample, and `dims` names sizes that are known when a layer asks for it."""
    spec = subject.spec(KernelSpec)
    shape = shape_of(subject)
    known = REGISTRY[spec.op].dims if spec.op in REGISTRY else tuple(shape.sizes)
    unknown = sorted(set(spec.dims) - set(known))
    told = f"known are {', '.join(known)}" if known else "none is known"
    require(not unknown, f"dims has {', '.join(unknown)}, so that it is never chosen; of {spec.op} {told}")
    _sizes(subject, seed=0)


def generated_sizes_match_reference(subject: Subject) -> None:
    """Every size that its `dims` allow, with and without a rest behind the last vector, in float32 if it can."""
    bench = KernelBench(subject, _dtype(subject))
    _each_size(subject, lambda sizes: bench.check(sizes, bench.arguments(sizes)))


def every_dtype_matches_reference(subject: Subject) -> None:
    """Every other dtype that it declares, within its rounding of the reference form in float32."""
    others = sorted(subject.spec(KernelSpec).dtypes - {_dtype(subject)})
    if not others:
        raise NotApplicable("it declares one dtype")
    for dtype in others:
        bench = KernelBench(subject, dtype)
        _each_size(subject, lambda sizes, bench=bench: bench.check(sizes, bench.arguments(sizes)))  # type: ignore[misc]


def any_number_of_rows_matches_reference(subject: Subject) -> None:
    """No row at all, one, an odd number, and more than a thousand."""
    bench = KernelBench(subject, _dtype(subject))
    for seed, rows in enumerate(_ANY_ROWS):
        sizes = {**_sizes(subject, seed), "rows": rows}
        bench.check(sizes, bench.arguments(sizes, seed=seed))


def slices_match_reference(subject: Subject) -> None:
    """Arguments of rows may be slices of something larger, as a layer's queries are: rows lie apart."""

    def check(sizes: Mapping[str, int]) -> None:
        arguments = bench.arguments(sizes)
        bench.check(sizes, arguments, views(bench.guarded(arguments, sliced=True)), "rows lie apart")

    bench = KernelBench(subject, _dtype(subject))
    _each_size(subject, check)


def special_values_match_reference(subject: Subject) -> None:
    """Zeros, tiny and great values, infinities and NaN go where the reference form lets them go."""
    for dtype in sorted(subject.spec(KernelSpec).dtypes):
        bench = KernelBench(subject, dtype)
        for seed in range(12):
            sizes = {**_sizes(subject, seed), "rows": 9}
            arguments = bench.arguments(sizes, seed=seed, values=partial(_with_special, seed=seed))
            bench.check(sizes, arguments, note="special values")


def stays_inside_its_tensors(subject: Subject) -> None:
    """Nothing before, behind or between the rows of its arguments is read or written, whatever lies there."""

    def check(sizes: Mapping[str, int]) -> None:
        arguments = bench.arguments(sizes)
        for sliced in (False, True):
            guarded = bench.guarded(arguments, sliced=sliced)
            before = [one.guards() for one in guarded if isinstance(one, Guarded)]
            if sliced:
                bench.run(views(guarded))
            else:
                bench.check(sizes, arguments, views(guarded), "NaN around its arguments")
            after = [one.guards() for one in guarded if isinstance(one, Guarded)]
            intact = all(torch.equal(old, new) for old, new in zip(before, after))
            require(intact, f"{bench.spec.op} of {dict(sizes)}: it writes outside of its arguments")

    bench = KernelBench(subject, _dtype(subject))
    _each_size(subject, check)


def outputs_are_its_own(subject: Subject) -> None:
    """An output shares memory with nothing else: no argument, no other output, none of an earlier call."""
    bench = KernelBench(subject, _dtype(subject))
    sizes = {**_sizes(subject, 1), "rows": 5}
    arguments = bench.arguments(sizes)
    plain = copies(arguments)
    shared = _sharing(call(bench.reference, plain), plain)
    mine = copies(arguments)
    first = call(bench.kernel, mine)
    require(_sharing(first, mine) <= shared, f"{bench.spec.op}: its outputs share memory where the reference's do not")
    kept = copies(outputs_of(first))
    bench.run(bench.arguments(sizes, seed=1))
    same = all(same_bits(one, before) for one, before in zip(outputs_of(first), kept))
    require(same, f"{bench.spec.op}: a second call changes the output of the first")


def equal_inputs_give_equal_bits(subject: Subject) -> None:
    """The same arguments give the same bits, also after other calls."""
    bench = KernelBench(subject, _dtype(subject))
    for seed in range(4):
        sizes = {**_sizes(subject, seed), "rows": 33}
        arguments = bench.arguments(sizes, seed=seed)
        first = bench.run(copies(arguments))
        for other in range(3):
            bench.run(bench.arguments(sizes, seed=100 + other))
            again = bench.run(copies(arguments))
            same = all(same_bits(one, before) for one, before in zip(again, first))
            require(same, f"{bench.spec.op} of {sizes}: equal arguments give other bits in call {other + 2}")


def rows_do_not_see_each_other(subject: Subject) -> None:
    """Alone, among few and among many others, a row has the same values up to the last rounding."""
    bench = KernelBench(subject, _dtype(subject))
    if not bench.shape.rows:
        raise NotApplicable(f"{bench.spec.op} is not about rows")
    for seed in range(4):
        sizes = {**_sizes(subject, seed), "rows": 40}
        arguments = bench.arguments(sizes, seed=seed)
        whole = bench.run(copies(arguments))
        for begin, end in bench.shape.alone(arguments, ((0, 1), (39, 40), (3, 10), (8, 40))):
            part = bench.run(bench.shape.between(arguments, begin, end))
            same = all(within_rounding(one, full[begin:end]) for one, full in zip(part, whole))
            where = f"{bench.spec.op} of {sizes}: rows {begin} to {end - 1}"
            require(same, f"{where} alone differ from the same rows in the batch")


def faster_than_reference(subject: Subject) -> None:
    """On large arguments it is faster than the reference form on the same device."""
    bench = KernelBench(subject, _dtype(subject))
    large = dict(bench.shape.large)
    if not large:
        raise NotApplicable("its sample has no `large` sizes")
    refused = [rule.against(name, large[name]) for name, rule in bench.spec.dims.items() if name in large]
    if any(refused):
        raise NotApplicable(f"it does not take {large}")
    arguments = bench.arguments(large)

    def timed(form: Callable[..., Any]) -> None:
        call(form, arguments)
        wait(bench.device)

    ratio = speed_ratio(partial(timed, bench.kernel), partial(timed, bench.reference))
    require(ratio > 1, f"{bench.spec.op} of {large} runs at {ratio:.2f} times the speed of the reference form")


def _each_size(subject: Subject, check: Callable[[dict[str, int]], None]) -> None:
    need_hypothesis()
    for_all(_drawn(subject), check)


def _drawn(subject: Subject) -> SearchStrategy[dict[str, int]]:
    from hypothesis import strategies

    shape = shape_of(subject)
    choices = {name: strategies.sampled_from(values) for name, values in _candidates(subject).items()}
    return strategies.fixed_dictionaries({**choices, "rows": strategies.sampled_from(ROWS)}).filter(shape.fits)


def _sizes(subject: Subject, seed: int) -> dict[str, int]:
    """Return sizes that the kernel takes, without rows; which ones depends on the seed."""
    rng, candidates = random.Random(seed), _candidates(subject)
    shape = shape_of(subject)
    for _ in range(1000):
        sizes = {name: rng.choice(values) for name, values in candidates.items()}
        if shape.fits(sizes):
            return sizes
    raise NotApplicable(f"its dims allow none of the sizes that the kit tries: {candidates}")


def _candidates(subject: Subject) -> dict[str, list[int]]:
    """Return the values of every size that the kernel's `dims` allow, the smallest and greatest among them."""
    spec, found = subject.spec(KernelSpec), {}
    for name, values in shape_of(subject).sizes.items():
        rule = spec.dims.get(name)
        if rule is None:
            found[name] = list(values)
            continue
        step = rule.multiple_of
        first = -(-rule.least // step) * step
        tried = {*values, first, first + step, first + 3 * step, (rule.most or first) // step * step}
        found[name] = sorted(value for value in tried if rule.against(name, value) is None)
        require(found[name], f"dims allow no {name} at all: {rule!r}")
    return found


def _dtype(subject: Subject) -> str:
    return plainest(subject.spec(KernelSpec).dtypes)


def _with_special(tensor: Tensor, seed: int) -> Tensor:
    """Put a special value into some rows, and several into others."""
    rng, flat = random.Random(seed), tensor.flatten()
    for _ in range(max(1, len(tensor) // 2)):
        if flat.numel():
            flat[rng.randrange(flat.numel())] = rng.choice(_SPECIAL)
    return flat.view(tensor.shape)


def _sharing(answer: Any, arguments: list[Any]) -> set[tuple[str, int, int]]:
    """Return which outputs share memory with an argument or with another output."""
    outputs = outputs_of(answer)
    found = set(_overlaps("argument", outputs, arguments))
    for first, second in combinations(range(len(outputs)), 2):
        if _storage(outputs[first]) == _storage(outputs[second]):
            found.add(("output", first, second))
    return found


def _overlaps(name: str, outputs: list[Tensor], others: list[Any]) -> Iterator[tuple[str, int, int]]:
    for number, output in enumerate(outputs):
        for place, one in enumerate(others):
            held = memory_of(one)
            if held is not None and _storage(output) == _storage(held):
                yield name, number, place


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


CHECKS = (
    *checks(
        declared_sizes_exist,
        generated_sizes_match_reference,
        every_dtype_matches_reference,
        any_number_of_rows_matches_reference,
        slices_match_reference,
        special_values_match_reference,
        stays_inside_its_tensors,
        outputs_are_its_own,
        equal_inputs_give_equal_bits,
        rows_do_not_see_each_other,
        on_device=True,
    ),
    *checks(faster_than_reference, level=Level.L3),
)
