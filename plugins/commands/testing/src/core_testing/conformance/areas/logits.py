"""Logits processors: each row on its own, from its tokens alone, and nothing left of a request that is gone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from core.api.descriptors import LogitsSpec
from core_testing.conformance.device_samples import LogitsSample
from core_testing.conformance.outcome import Failed, NotApplicable, checks, require
from core_testing.conformance.subject import Subject
from core_testing.conformance.tools.logits_bench import (
    OUTPUTS,
    PROMPTS,
    ROWS,
    VOCABULARY,
    Asked,
    LogitsBench,
    requests,
)

_STRANGE: tuple[Any, ...] = (
    None,
    "",
    "x",
    -1,
    0,
    1,
    10**9,
    0.5,
    float("nan"),
    True,
    [],
    ["x"],
    [-1],
    [10**9],
    {},
    {"x": 1},
)
"""Values that a request may carry under any name."""

_CLOSE = 1e-3
_VOCABULARIES = (1, 31, 32, 128, 1000)
DRAFT = (3, 9, 3, 11)


def samples_are_accepted(subject: Subject) -> None:
    """Its samples use arguments and sampling parameters that the descriptor names, and they are accepted."""
    samples, spec = subject.samples(LogitsSample), subject.spec(LogitsSpec)
    check = _check(subject)
    if not samples and (spec.args or spec.fields):
        subject.need_samples(LogitsSample)
    for sample in samples:
        unknown = sorted(sample.args.keys() - {*spec.args, *(one.name for one in spec.fields)})
        require(not unknown, f"'{sample.name}' uses {', '.join(unknown)}, which the descriptor's args and fields lack")
        for fault in _faults(spec, sample.args):
            raise Failed(f"'{sample.name}': {fault}")
        try:
            check(sample.args)
        except ValueError as error:
            raise Failed(f"check refuses '{sample.name}': {error}") from error


def check_refuses_with_value_errors(subject: Subject) -> None:
    """Whatever a request carries, `check` accepts it or raises `ValueError`; what the samples call wrong it refuses."""
    spec = subject.spec(LogitsSpec)
    if spec.check is None:
        raise NotApplicable("it has no check")
    check = _check(subject)
    for args in _hostile(subject):
        try:
            check(args)
        except ValueError:
            continue
        except Exception as error:
            raise Failed(f"check of {args!r} raises {type(error).__name__}, where a ValueError is due") from error
    for sample in subject.samples(LogitsSample):
        for args in sample.refused:
            require(not _accepts(check, args), f"'{sample.name}': check accepts {dict(args)!r}")


def fields_are_as_declared(subject: Subject) -> None:
    """A row whose sampling parameters are at their defaults is left alone, and each works at the ends of its range."""
    spec = subject.spec(LogitsSpec)
    if not spec.fields:
        raise NotApplicable("it declares no sampling parameters")
    bench = LogitsBench(subject)
    unsaid = Asked({}, PROMPTS[1])
    if bench.admit(2, unsaid, anyway=True):
        same = torch.equal(bench.apply([2])[0], bench.logits(2))
        require(same, "its fields are at their defaults, which have no effect, and the row's logits change")
    for field in spec.fields:
        for value in [end for end in (field.low, field.high) if end is not None and field.fault(end) is None]:
            bench = LogitsBench(subject)
            if bench.admit(2, Asked({field.name: value}, PROMPTS[1])):
                (found,) = bench.apply([2])
                alive = bool(found.isfinite().any()) and not bool((found.isnan() | found.isposinf()).any())
                require(alive, f"{field.name} = {value}, an end of its range: nothing can be chosen of the logits")


def _faults(spec: LogitsSpec, args: Mapping[str, Any]) -> list[str]:
    """Return what core refuses of a request's sampling parameters."""
    return [fault for one in spec.fields if one.name in args and (fault := one.fault(args[one.name]))]


def logits_stay_logits(subject: Subject) -> None:
    """Logits are changed in place and stay numbers, some token can be chosen, and its other inputs are read only."""
    for vocabulary in (VOCABULARY, *_VOCABULARIES):
        bench = LogitsBench(subject, vocabulary)
        rows = _admitted(bench, requests(subject), only_if=vocabulary != VOCABULARY)
        tokens, counts, index = bench.tokens.clone(), bench.counts.copy(), np.array(rows, np.int64)
        logits = torch.stack([bench.logits(row) for row in rows]) if rows else torch.zeros(0, vocabulary)
        given = counts[rows].copy()
        if rows:
            bench.processor.apply(logits, index, given)
        where = f"of a vocabulary of {vocabulary}"
        require(not bool(torch.isnan(logits).any() | torch.isposinf(logits).any()), f"logits {where} are NaN or inf")
        alive = bool(torch.isfinite(logits).any(-1).all())
        require(alive, f"a row's logits {where} are all -inf, so that nothing can be chosen")
        require(torch.equal(bench.tokens, tokens), "apply writes to the rows' tokens")
        same = np.array_equal(given, counts[rows]) and index.tolist() == rows
        require(same, "apply writes to rows or output_counts")


def argmax_is_as_declared(subject: Subject) -> None:
    """If it says that it never changes the most likely token, it never does."""
    bench = LogitsBench(subject)
    declared = bench.processor.is_argmax_invariant
    require(isinstance(declared, bool), f"is_argmax_invariant is {declared!r}, due is True or False")
    if not declared:
        raise NotApplicable("it does not declare is_argmax_invariant")
    rows = _admitted(bench, requests(subject))
    for seed in range(30):
        before = torch.stack([bench.logits(row, seed) for row in rows]).argmax(-1).tolist()
        after = bench.apply(rows, seed).argmax(-1).tolist()
        require(before == after, f"it says it is argmax-invariant, and makes {before} the most likely tokens {after}")


def rows_do_not_mix(subject: Subject) -> None:
    """A row's logits are the same alone and among others, in any order, whatever the others ask for."""
    asked = requests(subject)
    together = LogitsBench(subject)
    rows = _admitted(together, asked)
    for order in (rows, rows[::-1], rows[1:], rows[::2]):
        found = together.apply(order)
        for place, row in enumerate(order):
            alone = LogitsBench(subject)
            alone.admit(row, asked[row])
            same = torch.equal(found[place], alone.apply([row])[0])
            require(same, f"row {row} has other logits among rows {order} than alone")
        together = LogitsBench(subject)
        _admitted(together, asked)


def rows_are_forgotten(subject: Subject) -> None:
    """A row that is given away has nothing of the request before, whichever that was."""
    asked = requests(subject)
    for first in asked[:4]:
        for second in asked[:4]:
            used, fresh = LogitsBench(subject), LogitsBench(subject)
            if used.admit(2, first):
                used.apply([2])
                used.processor.release(2)
            if not used.admit(2, second):
                continue
            fresh.admit(2, second)
            same = torch.equal(used.apply([2], seed=3), fresh.apply([2], seed=3))
            require(
                same, f"after a request with {dict(first.args)!r}, one with {dict(second.args)!r} is served otherwise"
            )


def outputs_may_come_along(subject: Subject) -> None:
    """A request that comes with output is served as if each of its tokens had been sampled here."""
    for asked in requests(subject):
        here, along = LogitsBench(subject), LogitsBench(subject)
        if not here.admit(2, replace(asked, output=())):
            continue
        for token in asked.output:
            here.apply([2])
            here.say(2, token)
        along.admit(2, asked)
        same = torch.equal(here.apply([2], seed=3), along.apply([2], seed=3))
        require(same, f"a request that comes with {len(asked.output)} output tokens has other logits than one without")


def drafts_are_as_declared(subject: Subject) -> None:
    """If it says `drafts`, several positions of a row get the logits that they get one by one, kept or refused."""
    if not subject.spec(LogitsSpec).drafts:
        raise NotApplicable("it does not say that its rows may run drafts")
    for asked in requests(subject):
        here = LogitsBench(subject)
        if not here.admit(2, asked):
            continue
        found = here.drafted(2, DRAFT)
        for place in range(len(DRAFT) + 1):
            same = torch.equal(found[place], _after(subject, asked, DRAFT[:place]))
            require(same, f"a row behind {place} drafts has other logits beside its other positions than alone")
        here.say(2, DRAFT[0])
        here.say(2, DRAFT[0])
        same = torch.equal(here.apply([2]), _after(subject, asked, (DRAFT[0], DRAFT[0]))[None])
        require(same, "a row of which a draft was refused has other logits than one that ran none")


def _after(subject: Subject, asked: Asked, further: tuple[int, ...]) -> torch.Tensor:
    """Return a row's logits for a request that has `further` output, `(vocabulary,)`."""
    bench = LogitsBench(subject)
    bench.admit(2, replace(asked, output=(*asked.output, *further)))
    return bench.apply([2])[0]


def failures_stay_with_their_request(subject: Subject) -> None:
    """Arguments that it cannot use end their own request at most: other rows go on as if it were not there."""
    asked = requests(subject)
    alone = LogitsBench(subject)
    rows = _admitted(alone, asked[: ROWS - 1])
    due = alone.apply(rows)
    bench = LogitsBench(subject)
    _admitted(bench, asked[: ROWS - 1])
    for args in _hostile(subject):
        if not _accepts(_check(subject), args):
            continue  # refused in the front end
        try:
            if bench.admit(ROWS - 1, Asked(args, (4, 2))):
                bench.processor.release(ROWS - 1)
        except Failed:
            raise
        except Exception:  # ends this request alone
            continue
    require(torch.equal(bench.apply(rows), due), "requests with useless arguments change the logits of other rows")


def logits_equal_the_samples_reference(subject: Subject) -> None:
    """Where a sample says what becomes of logits, every row has just that, whatever it has said so far."""
    samples = [sample for sample in subject.samples(LogitsSample) if sample.reference is not None]
    if not samples:
        raise NotApplicable("no sample has a reference")
    for sample in samples:
        bench = LogitsBench(subject)
        asked = [Asked(sample.args, prompt, output) for prompt, output in zip(PROMPTS, OUTPUTS)]
        rows = [row for row, one in enumerate(asked) if bench.admit(row, one)]
        for seed in range(4):
            found = dict(zip(rows, bench.apply(rows, seed))) if rows else {}
            for row, one in enumerate(asked):
                before = bench.logits(row, seed)
                due = _due(sample, before.cpu().clone(), one)
                _require_logits(found.get(row, before).float().cpu(), due, f"'{sample.name}', {one}")


def _due(sample: LogitsSample, logits: torch.Tensor, asked: Asked) -> torch.Tensor:
    due = sample.reference(logits, asked.prompt, asked.output) if sample.reference is not None else logits
    require(due.shape == logits.shape, f"'{sample.name}': its reference gives shape {tuple(due.shape)}")
    return due.float()


def _require_logits(found: torch.Tensor, due: torch.Tensor, where: str) -> None:
    close = torch.isclose(found, due, rtol=_CLOSE, atol=_CLOSE)  # infinities are close to themselves alone
    if not bool(close.all()):
        token = int((~close).nonzero()[0])
        raise Failed(f"{where}: the logit of token {token} is {found[token]:.4g}, due is {due[token]:.4g}")


def _admitted(bench: LogitsBench, asked: list[Asked], *, only_if: bool = False) -> list[int]:
    """Admit a request to each row; return the rows that concern the processor.

    Args:
        only_if: Whether a request that raises is left out: it may be about tokens that a small vocabulary lacks.
    """
    rows = []
    for row, one in enumerate(asked[:ROWS]):
        try:
            if bench.admit(row, one):
                rows.append(row)
        except Failed:
            raise
        except Exception:
            if not only_if:
                raise
    return rows


def _hostile(subject: Subject) -> list[Mapping[str, Any]]:
    return [{name: value} for name in subject.spec(LogitsSpec).args for value in _STRANGE]


def _check(subject: Subject) -> Callable[[Mapping[str, Any]], None]:
    path = subject.spec(LogitsSpec).check
    if path is None:
        return lambda args: None
    found: Callable[[Mapping[str, Any]], None] = subject.load(path)
    return found


def _accepts(check: Callable[[Mapping[str, Any]], None], args: Mapping[str, Any]) -> bool:
    try:
        check(args)
    except Exception:  # what it may raise is another check's business
        return False
    return True


CHECKS = (
    *checks(samples_are_accepted, check_refuses_with_value_errors),
    *checks(
        fields_are_as_declared,
        logits_stay_logits,
        argmax_is_as_declared,
        rows_do_not_mix,
        rows_are_forgotten,
        outputs_may_come_along,
        drafts_are_as_declared,
        failures_stay_with_their_request,
        logits_equal_the_samples_reference,
        on_device=True,
    ),
)
