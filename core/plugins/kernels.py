"""Kernels of a start: which may serve which operation, in what order. Sizes decide later, in the layer builder."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from core.api.descriptors import KernelSpec
from core.api.errors import ConfigError, CoreError, PluginError
from core.api.kernels import OPS, KernelRequest
from core.api.verdict import ProbeResult, Verdict
from core.plugins.drivers import Candidate
from core.plugins.kinds import KERNEL
from core.plugins.report import SelectionReport
from core.plugins.select import Contest, Selector
from core.suggest import nearest

REFERENCE = "reference"
"""Stands for an operation's form in plain torch where a kernel's name is expected."""


def plan_kernels(
    selector: Selector, asks: Iterable[str], device: str, dtype: str, probe: ProbeResult
) -> list[Candidate]:
    """Return the kernels that layers may be given, best first for each operation; none is an answer too.

    Raises:
        ConfigError: CORE-C142, an ask is not `OP=NAME` of an operation that exists.
        PluginError: A kernel that was asked for cannot be had.
    """
    commands = parse_kernels(asks)
    if not commands and not selector.catalogue.entries(KERNEL.group):
        return []

    def check(candidate: Candidate) -> Verdict:
        spec = candidate.spec(KernelSpec)
        request = KernelRequest(op=spec.op, device=device, dtype=dtype)
        lacking = sorted(feature for feature in spec.needs if not probe.has(feature))
        return Verdict.of(
            None if spec.op in OPS else f"core has no operation {spec.op}",
            *spec.replace(dims={}).check(request).reasons,
            f"the device lacks {', '.join(lacking)}" if lacking else None,
        )

    report = SelectionReport(KERNEL.group, f"{device}, {dtype}", how="per operation, when layers are built")
    selector.reports.append(report)
    contest = selector.assess(KERNEL, check)
    try:
        chosen = [one for op in sorted(OPS) for one in _for_op(op, commands.get(op), contest, selector)]
    except CoreError as error:
        report.error = error
        raise
    finally:
        report.rows = contest.listing()
    return chosen


def parse_kernels(asks: Iterable[str]) -> Mapping[str, Sequence[str]]:
    """Return operation -> names of its kernels, the one that is wanted most first.

    A name without an operation is a further choice for the operation before it: `rms_norm=a,b,rotary=c`.

    Raises:
        ConfigError: CORE-C142, an operation is unknown, or missing, or there twice.
    """
    commands: dict[str, list[str]] = {}
    last: list[str] = []
    for ask in asks:
        op, equals, name = ask.partition("=")
        if not equals and op and last:
            last.append(op)
            continue
        if not (equals and name) or op not in OPS:
            hint = nearest(op, sorted(OPS)) or f"Operations: {', '.join(sorted(OPS))}."
            raise ConfigError("CORE-C142", f"--kernel {ask!r} is not OP=NAME of an operation of core.", hint=hint)
        if op in commands and commands[op] != [name]:
            text = f"--kernel names two kernels for {op}: {', '.join(commands[op])} and {name}."
            hint = f"Name one, or say which comes first: {op}={','.join((*commands[op], name))}."
            raise ConfigError("CORE-C142", text, hint=hint)
        last = commands[op] = [name]
    return commands


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
    """Return the first of the kernels asked for that can serve; none where the reference form comes first."""
    wanted = asks[: asks.index(REFERENCE)] if REFERENCE in asks else asks
    if not wanted:
        return []
    try:
        found = next(contest.asked(wanted))
    except PluginError as error:
        if REFERENCE in asks and error.code != "CORE-P102":
            return []
        raise
    if _op(found) != op:
        text = f"kernel '{found.entry.name}' ({found.entry.owner}) is one of {_op(found)}, not of {op}."
        raise PluginError("CORE-P201", text, hint=f"Give --kernel {_op(found)}={found.entry.name}.")
    return [found]


def _op(candidate: Candidate) -> str:
    return candidate.spec(KernelSpec).op
