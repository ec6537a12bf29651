"""What multiplies with experts' weights of each form on a card, for docs/gpu-selection.md."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from gpu_tables import alike

from core.api.descriptors import KernelSpec
from core.api.forms import WeightForm
from core.plugins.kinds import KERNEL
from core.selection.foundation import KernelPlace
from core.selection.kernels import kernel_verdict, plan_kernels
from core.selection.products import ProductChoice, explain_products
from core.selection.report import SelectionReport
from core.selection.select import Selector

OPERATIONS = ("experts_in", "experts_out")


def experts_for(chooses: Selector, place: KernelPlace, forms: Mapping[str, WeightForm]) -> dict[str, SelectionReport]:
    """Return name of a form -> what multiplies with it in experts, and what speaks against the others."""
    ranked = [one for one in plan_kernels(chooses, [], place) if not one.reference_only]
    contest = chooses.assess(KERNEL, lambda one: kernel_verdict(one, place))
    choices = {op: ProductChoice([one for one in ranked if one.spec(KernelSpec).op == op], True) for op in OPERATIONS}
    named = {f"weights {form.shown}": name for name, form in forms.items()}
    reports = explain_products(contest, place, dict.fromkeys(forms.values(), 0), choices)
    return {named[one.subject]: one for one in reports}


def experts_table(
    titles: Sequence[str],
    plain: Sequence[Mapping[str, SelectionReport]],
    full: Sequence[Mapping[str, SelectionReport]],
    forms: Mapping[str, WeightForm],
    shown: Callable[[str], str],
) -> Iterator[str]:
    """Yield the lines of the table.

    Args:
        titles: The cards'.
        plain, full: What `experts_for` gave for each card, without libraries and with them.
        shown: Returns titles as the table has them.
    """
    yield "| weights | form | served by | with libraries | cards |"
    yield "|---|---|---|---|---|"
    for name, form in forms.items():
        rows = [
            (title, [_served(one[name]), _served(other[name])])
            for title, one, other in zip(titles, plain, full, strict=True)
        ]
        for cards, cells in alike(rows):
            yield f"| {name} | `{form.shown}` | {' | '.join(cells)} | {shown(cards)} |"


def _served(report: SelectionReport) -> str:
    """Return what serves both products, told once where it is the reference."""
    names = [told.partition(": ")[2] for told in report.how.split(", ")]
    return ", ".join(name if name == "reference" else f"`{name}`" for name in dict.fromkeys(names))
