"""Neighbouring parts of a weight that one launch multiplies with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from core_plugin_kernels_triton.products.stored import Stored, stored

if TYPE_CHECKING:
    from torch import Tensor

    from core.api import WeightForm

FIXABLE = frozenset({"float8:tensor", "e2m1:16"})
"""Activations whose scale a checkpoint may fix, for each part another one."""


@dataclass(frozen=True, slots=True)
class Run:
    """Parts of one form.

    Attributes:
        number: Of this run; its parameters end with it.
        first, rows: Outputs.
        parts: Index of each of its parts -> the first of its outputs, counted within the run.
    """

    number: int
    form: WeightForm
    first: int
    rows: int
    parts: dict[int, int]
    stored: Stored

    def named(self, name: str) -> str:
        """Return the name of a parameter of this run."""
        return f"{name}_{self.number}"

    def params(self, params: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return this run's parameters by their names without its number."""
        end = f"_{self.number}"
        return {name.removesuffix(end): one for name, one in params.items() if name.endswith(end)}


def runs(forms: Sequence[WeightForm], rows: Sequence[int], inputs: int) -> Iterator[Run]:
    """Yield as few runs as there can be."""
    number = index = first = 0
    while index < len(rows):
        form, parts, count = forms[index], {index: 0}, rows[index]
        while index + 1 < len(rows) and forms[index + 1] == form and _goes_on(form, count):
            index += 1
            parts[index] = count
            count += rows[index]
        yield Run(number, form, first, count, parts, stored(form, count, inputs))
        number, index, first = number + 1, index + 1, first + count


def _goes_on(form: WeightForm, rows: int) -> bool:
    """Whether a further part can follow so many outputs."""
    if form.ordered or form.activations in FIXABLE:
        return False
    if not (form.inputs or form.zeros):
        return True
    return bool(form.outputs) and rows % form.outputs == 0
