"""Sampling parameters that a logits processor declares, as host arrays indexed by row."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from core.api.sampling import SamplingField, SamplingView

if TYPE_CHECKING:
    from core.api.descriptors import LogitsSpec


class FieldRows:
    """The numbers of one processor's rows.

    Args:
        fields: Its own.
        args: Names of `extra_args` that it reads besides.

    Attributes:
        numbers: Name of the field -> `(max_rows,)` float64; a truth value is 0 or 1.
    """

    def __init__(self, fields: Sequence[SamplingField], args: Collection[str], max_rows: int) -> None:
        self.numbers: Mapping[str, np.ndarray] = {
            one.name: np.full(max_rows, one.default, dtype=np.float64) for one in fields
        }
        self._defaults = {one.name: one.default for one in fields}
        self._args = frozenset(args)

    @classmethod
    def of(cls, spec: LogitsSpec, max_rows: int) -> FieldRows:
        """Return those of a processor by its descriptor."""
        return cls(spec.fields, spec.args, max_rows)

    def admit(self, row: int, params: SamplingView) -> bool:
        """Give a row its new request's numbers; say whether the processor has to be asked about the request.

        It has not where it declares fields and the request leaves all of them as they are: that is what defaults are.
        """
        extra, asked = params.extra_args or {}, not self._defaults
        for name, default in self._defaults.items():
            value = extra.get(name)
            value = default if value is None else value
            self.numbers[name][row] = value
            asked |= value != default
        return asked or not self._args.isdisjoint(extra)
