"""Products in the report: for each form of weights that a checkpoint has, what multiplies with it, and why not others.

Nothing is decided here. Layers ask with their sizes while the model is built, and go by what the format says of them;
this is what can be known before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from core.api.descriptors import KernelSpec
from core.api.errors import CoreError
from core.api.forms import WeightForm
from core.api.kernels import KernelRequest
from core.plugins.drivers import Candidate
from core.plugins.kinds import KERNEL
from core.selection.foundation import KernelPlace, refined
from core.selection.report import Row, SelectionReport
from core.selection.select import Contest
from core.version import __version__

KINDS: Mapping[str, str] = {
    "linear": "linear",
    "lookup": "embedding",
    "experts_in": "experts",
    "experts_out": "experts",
}
"""Operation -> kind of the layers that it is reported for."""


class ProductChoice(NamedTuple):
    """Products that may multiply in an operation.

    Attributes:
        kernels: Products, best first; how far each takes the form at hand is open.
        opens: Whether the reference product may serve where none of them does.
    """

    kernels: Sequence[Candidate]
    opens: bool


def explain_products(
    contest: Contest, place: KernelPlace, forms: Mapping[WeightForm, int], choices: Mapping[str, ProductChoice]
) -> Iterator[SelectionReport]:
    """Yield a report for each form, the most frequent first."""
    for form, count in sorted(forms.items(), key=lambda item: (-item[1], item[0].key)):
        number = f", {count} {'matrix' if count == 1 else 'matrices'}" if count else ""
        report = SelectionReport(KERNEL.group, f"weights {form.shown}{number}")
        served = []
        for op, choice in choices.items():
            rows, name = _for_form(op, form, contest, place, choice)
            report.rows += rows
            served.append(f"{op}: {name}")
        report.how = ", ".join(served)
        yield report


def _for_form(
    op: str, form: WeightForm, contest: Contest, place: KernelPlace, choice: ProductChoice
) -> tuple[list[Row], str]:
    """Return the rows of an operation's products, and the name of the one that takes the form."""
    order = [one.entry for one in choice.kernels]
    rows, best = [], len(order)
    for candidate in contest.candidates:
        if candidate.spec(KernelSpec).op != op:
            continue
        row = _judged(candidate, contest.rows[candidate.entry], op, form, place)
        rows.append(row)
        if row.state == "ok" and candidate.entry in order[:best]:
            best = order.index(candidate.entry)
    chosen = order[best] if best < len(order) else None
    for row in rows:
        if chosen is not None and (row.name, row.dist) == (chosen.name, chosen.dist):
            row.state = "chosen"
    opened = Row("reference", "core", __version__, "ok", 0, (f"{op}: opens weights to {place.dtype}",))
    if chosen is None and choice.opens:
        opened.state = "chosen"
    rows.sort(key=lambda row: (row.state != "chosen", -(row.score or 0), row.name))
    name = chosen.name if chosen is not None else "reference" if choice.opens else "none of those asked for (CORE-P201)"
    return [*rows, opened], name


def _judged(candidate: Candidate, known: Row, op: str, form: WeightForm, place: KernelPlace) -> Row:
    """Return a product's row for a form: what spoke against it anyway, and what speaks against it here."""
    spec = candidate.spec(KernelSpec)
    facts = {"kind": KINDS[op], "method": place.method}
    request = KernelRequest(op=op, device=place.device, dtype=place.dtype, form=form.key, facts=facts)
    row = Row(known.name, known.dist, known.version, known.state, known.score, known.reasons, known.code)
    against = spec.replace(dims={}).check(request).reasons
    if row.state == "ok" and not against:
        try:
            against = refined(candidate, spec.refine, request, place.probe).reasons
        except CoreError as error:
            row.fail(error)
            return row
    if against and not row.code:
        row.state, row.score, row.reasons = "rejected", None, tuple(dict.fromkeys((*known.reasons, *against)))
    return row
