"""Quantization methods while weights are loaded: again, others, made-up ones, and tensors that do not belong there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from core.api.descriptors import QuantSpec
from core.api.errors import CheckpointError
from core.api.forms import Stored
from core.api.quantization import LayerSite
from core.api.weights import WeightTensor
from core.layers.params import Params
from core_testing.conformance.areas.quantization import LARGE, title
from core_testing.conformance.outcome import Failed, NotApplicable, checks, require
from core_testing.conformance.subject import Subject
from core_testing.conformance.tools.changed import Short, Turned
from core_testing.conformance.tools.devices import plainest
from core_testing.conformance.tools.layers import Case, LayerBench, cases
from core_testing.conformance.tools.tensors import PlainTensor


def two_loads_give_equal_bytes(subject: Subject) -> None:
    """Weights that are loaded twice give the same parameters to the last bit."""
    for case, bench in _benches(subject):
        first = _copied(bench.layer.params)
        bench.fill()
        require(_equal(first, bench.layer.params), f"{title(case, bench.site)}: loaded again, its parameters differ")


def an_update_is_as_good_as_a_start(subject: Subject) -> None:
    """Other weights, over the first, give the parameters of a layer that never had others: nothing of them is left.

    A method that rounds plain weights rounds those of an update, too.
    """
    checked = False
    for case, bench in _benches(subject):
        first, others = _copied(bench.layer.params), _others(case, bench)
        if not _readable(bench, others):
            continue
        checked = True
        bench.fill(others)
        fresh = LayerBench(subject, replace(case, tensors=partial(list, others)), bench.site, _dtype(subject))
        updated = bench.layer.params
        where = title(case, bench.site)
        require(_equal(updated, fresh.layer.params), f"{where}: an update and a start with its weights differ")
        require(not _equal(updated, first), f"{where}: other weights change nothing")
    if not checked:
        raise NotApplicable("outputs of its samples cannot be put in another order as they are stored")


def made_up_weights_serve(subject: Subject) -> None:
    """Weights that core makes up in the forms that are told (`--load-format dummy`) give numbers, equal each time."""
    for case, bench in _benches(subject):
        site, made = bench.site, []
        for _ in range(2):
            for layer, params in bench.layer.group.invented(bench.device):
                layer.bind(params)
            made.append(_copied(bench.layer.params))
        require(_equal(*made), f"{title(case, site)}: made-up weights differ from time to time")
        finite = bool(bench.layer(bench.inputs(3)).isfinite().all())
        require(finite, f"{title(case, site)}: with made-up weights it gives what is no number")


def tensors_of_other_sizes_are_refused_by_name(subject: Subject) -> None:
    """A tensor that is too short in one dimension is refused in one line that has its name; the old weights stay."""
    for case, bench in _benches(subject):
        first, given = _copied(bench.layer.params), list(_own(case, bench.site))
        for tensor, stored in _placed(bench, given):
            for axis in {axis for axis in stored.axes if axis is not None}:
                if axis >= len(tensor.shape) or tensor.shape[axis] < 2:
                    continue
                wrong = [Short(one, axis) if one is tensor else one for one in given]
                where = f"{title(case, bench.site)}: '{tensor.name}' without the last of dimension {axis}"
                _require_refused(bench, wrong, tensor.name, where)
        require(_equal(first, bench.layer.params), f"{title(case, bench.site)}: what was refused changed its weights")


def scales_that_are_no_numbers_are_refused_by_name(subject: Subject) -> None:
    """A float tensor beside the codes that holds a NaN is refused in one line that has its name, if it counts."""
    checked = False
    for case, bench in _benches(subject):
        given = list(_own(case, bench.site))
        for tensor, stored in _placed(bench, given):
            if stored.suffix == "weight" or not _is_wide_float(tensor):
                continue
            checked, values = True, tensor.raw().clone(memory_format=torch.contiguous_format)
            values.view(-1)[0] = torch.nan
            wrong = [PlainTensor(one.name, values) if one is tensor else one for one in given]
            where = f"{title(case, bench.site)}: '{tensor.name}' with a NaN"
            _require_refused(bench, wrong, tensor.name, where, may_do_nothing=True)
    if not checked:
        raise NotApplicable("its checkpoints have no scales that are floats")


def _require_refused(
    bench: LayerBench, tensors: Sequence[WeightTensor], name: str, where: str, *, may_do_nothing: bool = False
) -> None:
    try:
        bench.fill(tensors)
    except CheckpointError as error:
        text = str(error)
        require(name in text and "\n" not in text, f"{where} is refused without its name in one line: {text}")
    except Exception as error:
        raise Failed(f"{where} raises {type(error).__name__}, not CheckpointError") from error
    else:
        finite = may_do_nothing and bool(bench.layer(bench.inputs(3)).isfinite().all())
        require(finite, f"{where} is taken")


def _benches(subject: Subject) -> Iterator[tuple[Case, LayerBench]]:
    for case in cases(subject):
        for site in [one for one in case.sites if one.rows * one.in_features < LARGE]:
            yield case, LayerBench(subject, case, site, _dtype(subject))


def _dtype(subject: Subject) -> str:
    return plainest(subject.spec(QuantSpec).dtypes)


def _own(case: Case, site: LayerSite) -> Iterator[WeightTensor]:
    """Yield the tensors of a layer."""
    modules = tuple(f"{site.module(part)}." for part, _ in site.parts)
    yield from (tensor for tensor in case.tensors() if tensor.name.startswith(modules))


def _placed(bench: LayerBench, tensors: Sequence[WeightTensor]) -> Iterator[tuple[WeightTensor, Stored]]:
    """Yield the tensors that the format names, each with how it lies; biases are core's own."""
    for part, _ in bench.site.parts:
        module = f"{bench.site.module(part)}."
        for stored in bench.format.stored(bench.site, part):
            yield from ((tensor, stored) for tensor in tensors if tensor.name == module + stored.suffix)


def _others(case: Case, bench: LayerBench) -> list[WeightTensor]:
    """Return other weights in the same form: those of the case with the outputs of each part in the opposite order."""
    given = list(_own(case, bench.site))
    turned = {tensor.name: Turned(tensor, stored.axes[0]) for tensor, stored in _placed(bench, given)}
    for part, _ in bench.site.parts:
        own = [tensor for tensor in given if tensor.name.startswith(f"{bench.site.module(part)}.weight")]
        if own and all(stored.axes[0] is None for stored in bench.format.stored(bench.site, part)):
            codes = max(own, key=lambda tensor: tensor.raw().numel())  # one run of codes, whatever the outputs
            turned[codes.name] = Turned(codes, 0)
    return [turned.get(tensor.name, tensor) for tensor in given]


def _readable(bench: LayerBench, tensors: Sequence[WeightTensor]) -> bool:
    """Whether tensors are a layer's: where outputs share words, these may mean something else in another order."""
    try:
        bench.fill(tensors)
    except CheckpointError:
        return False
    bench.fill()
    return True


def _is_wide_float(tensor: WeightTensor) -> bool:
    values = tensor.raw()
    return tensor.encoding == "plain" and values.is_floating_point() and values.dtype.itemsize > 1


def _copied(params: Params) -> Params:
    return {name: value.clone() for name, value in params.items()}


def _equal(first: Params, second: Params) -> bool:
    """Whether parameters are equal to the last bit."""
    return first.keys() == second.keys() and all(_same(one, second[name]) for name, one in first.items())


def _same(first: Tensor, second: Tensor) -> bool:
    alike = first.dtype == second.dtype and first.shape == second.shape
    bytes_of = [one.contiguous().flatten().view(torch.uint8) for one in (first, second)]
    return alike and torch.equal(*bytes_of)


CHECKS = checks(
    two_loads_give_equal_bytes,
    an_update_is_as_good_as_a_start,
    made_up_weights_serve,
    tensors_of_other_sizes_are_refused_by_name,
    scales_that_are_no_numbers_are_refused_by_name,
    on_device=True,
)
