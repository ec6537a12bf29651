"""Kernels of a start: which may serve which operation, in what order. Sizes decide later, in the layer builder."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from core.api.descriptors import KernelSpec
from core.api.errors import ConfigError, CoreError, PluginError
from core.api.forms import WeightForm
from core.api.kernels import OPS, KernelRequest
from core.api.record import EMPTY
from core.api.verdict import Verdict
from core.plugins.drivers import Candidate
from core.plugins.kinds import KERNEL
from core.selection.foundation import KernelPlace, refined
from core.selection.products import ProductChoice, explain_products
from core.selection.report import SelectionReport
from core.selection.select import Contest, Selector
from core.suggest import nearest

REFERENCE = "reference"
"""Stands for an operation's form in plain torch where a kernel's name is expected."""


def plan_kernels(
    selector: Selector, asks: Iterable[str], place: KernelPlace, forms: Mapping[WeightForm, int] = EMPTY
) -> list[Candidate]:
    """Return the kernels that layers may be given, best first for each operation; none is an answer too.

    Of an operation that plugins bring and that none of them can serve, one comes with its reference form alone.

    Args:
        forms: Forms in which the checkpoint stores matrices, with their number; for each, what multiplies with it is
            reported.

    Raises:
        ConfigError: CORE-C142, an ask is not `OP=NAME` of an operation that exists.
        PluginError: A kernel that was asked for cannot be had.
    """
    commands = parse_kernels(asks)
    if not (commands or forms or selector.catalogue.entries(KERNEL.group)):
        return []

    def check(candidate: Candidate) -> Verdict:
        return kernel_verdict(candidate, place)

    report = SelectionReport(KERNEL.group, f"{place.device}, {place.dtype}", how="per operation, when layers are built")
    selector.reports.append(report)
    contest = selector.assess(KERNEL, check)
    split = _reject_disagreeing(contest)
    known = sorted(OPS | {_op(one) for one in contest.candidates})
    _require_known(commands, known)
    try:
        chosen = {op: _for_op(op, commands.get(op), contest, selector) for op in known}
        for op in commands:
            for one in chosen.get(op, ()):  # an experimental one, too
                contest.rows[one.entry].state, contest.rows[one.entry].reasons = "ok", ()
    except CoreError as error:
        report.error = error
        raise
    finally:
        report.rows = contest.listing()
    choices = {op: ProductChoice(chosen[op], _may_open(commands.get(op))) for op in ("linear", "lookup")}
    selector.reports += explain_products(contest, place, forms, choices)
    bearers = {op: _bearer(op, contest) for op in known if op not in OPS and op not in split}
    return [one for op in known for one in chosen[op] or bearers.get(op, [])]


def parse_kernels(asks: Iterable[str]) -> Mapping[str, Sequence[str]]:
    """Return operation -> names of its kernels, the one that is wanted most first.

    A name without an operation is a further choice for the operation before it: `rms_norm=a,b,rotary=c`.

    Raises:
        ConfigError: CORE-C142, an operation is missing, or there twice.
    """
    commands: dict[str, list[str]] = {}
    last: list[str] = []
    for ask in asks:
        op, equals, name = ask.partition("=")
        if not equals and op and last:
            last.append(op)
            continue
        if not (equals and name and op):
            hint = nearest(op, sorted(OPS)) or f"Operations: {', '.join(sorted(OPS))}."
            raise ConfigError("CORE-C142", f"--kernel {ask!r} is not OP=NAME of an operation.", hint=hint)
        if op in commands and commands[op] != [name]:
            text = f"--kernel names two kernels for {op}: {', '.join(commands[op])} and {name}."
            hint = f"Name one, or say which comes first: {op}={','.join((*commands[op], name))}."
            raise ConfigError("CORE-C142", text, hint=hint)
        last = commands[op] = [name]
    return commands


def firmly_commanded(asks: Iterable[str]) -> frozenset[str]:
    """Return the operations whose kernels the user named without leaving the reference form as a way out."""
    return frozenset(op for op, names in parse_kernels(asks).items() if REFERENCE not in names)


def kernel_verdict(candidate: Candidate, place: KernelPlace) -> Verdict:
    """Return what speaks against a kernel, whatever the sizes and the form of the weights."""
    spec = candidate.spec(KernelSpec)
    request = KernelRequest(op=spec.op, device=place.device, dtype=place.dtype)
    lacking = sorted(feature for feature in spec.needs if not place.probe.has(feature))
    verdict = Verdict.of(
        *spec.replace(dims={}).check(request).reasons,
        f"the device lacks {', '.join(lacking)}" if lacking else None,
    )
    if not verdict.ok or spec.multiplies:  # of a product, `refine` is asked for each form
        return verdict
    return refined(candidate, spec.refine, request, place.probe)


def _reject_disagreeing(contest: Contest) -> Collection[str]:
    """Reject all kernels of an operation about which they do not agree; return these operations."""
    told = defaultdict(set)
    for one in contest.candidates:
        spec = one.spec(KernelSpec)
        told[spec.op].add(f"{spec.reference}, {'a product' if spec.multiplies else 'no product'}")
    for one in contest.candidates:
        if len(told[_op(one)]) > 1:
            named = " and ".join(sorted(told[_op(one)]))
            contest.reject(one, f"kernels of {_op(one)} name different reference forms: {named}")
    return [op for op, found in told.items() if len(found) > 1]


def _require_known(commands: Iterable[str], known: Collection[str]) -> None:
    for op in commands:
        if op not in known:
            hint = f"{nearest(op, known)} Operations here: {', '.join(known)}.".strip()
            text = f"--kernel names operation '{op}', which neither core nor an installed kernel knows."
            raise ConfigError("CORE-C142", text, hint=hint)


def _for_op(op: str, asks: Sequence[str] | None, contest: Contest, selector: Selector) -> list[Candidate]:
    ranking = [one for one in contest.ranking() if _op(one) == op]
    if asks is not None:
        return _commanded(op, asks, contest)
    answer = selector.hooks.select(KERNEL.group, [one.entry.name for one in ranking], {"op": op}) if ranking else None
    if answer is not None:
        ranking.sort(key=lambda one: one.entry.name != answer[0])
    for one in ranking:
        selector.catalogue.find(KERNEL.group, one.entry.name)  # refuses a name that two distributions claim
    return ranking


def _commanded(op: str, asks: Sequence[str], contest: Contest) -> list[Candidate]:
    """Return those of the kernels asked for that can serve, in order; of what stands behind `reference`, none."""
    wanted = asks[: asks.index(REFERENCE)] if REFERENCE in asks else asks
    if not wanted:
        return []
    try:
        found = list(contest.asked(wanted))
    except PluginError as error:
        if REFERENCE in asks and error.code != "CORE-P102":
            return []
        raise
    for one in found:
        if _op(one) != op:
            text = f"kernel '{one.entry.name}' ({one.entry.owner}) is one of {_op(one)}, not of {op}."
            raise PluginError("CORE-P201", text, hint=f"Give --kernel {_op(one)}={one.entry.name}.")
    return found


def _may_open(asks: Sequence[str] | None) -> bool:
    """Whether the reference product may serve where no kernel can."""
    return asks is None or REFERENCE in asks


def _bearer(op: str, contest: Contest) -> list[Candidate]:
    """Return a kernel of an operation that plugins bring, for the sake of the reference form that it names."""
    naming = [one for one in contest.candidates if _op(one) == op]
    return [replace(min(naming, key=lambda one: (one.entry.name, one.entry.dist)), reference_only=True)]


def _op(candidate: Candidate) -> str:
    return candidate.spec(KernelSpec).op
