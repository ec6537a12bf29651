"""How a form of weights lies in memory, and what kernels have to know of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from core_plugin_kernels_triton.products.kernels import kinds

if TYPE_CHECKING:
    from core.api import WeightForm

FLOAT8 = {"float8_e4m3fn": torch.float8_e4m3fn, "float8_e5m2": torch.float8_e5m2}
"""Codes of one byte, by their names in forms."""

CODES: Mapping[str, int] = {
    "int": kinds.INT.value,
    "float8_e4m3fn": kinds.E4M3.value,
    "float8_e5m2": kinds.E5M2.value,
    "e2m1": kinds.E2M1.value,
    "nf4": kinds.TABLE.value,
    "fp4": kinds.TABLE.value,
}
BLOCKS: Mapping[str, tuple[int, int, int]] = {
    "Q4_0": (kinds.Q4_0.value, 32, 18),
    "Q4_1": (kinds.Q4_1.value, 32, 20),
    "Q5_0": (kinds.Q5_0.value, 32, 22),
    "Q5_1": (kinds.Q5_1.value, 32, 24),
    "Q8_0": (kinds.Q8_0.value, 32, 34),
    "IQ4_NL": (kinds.IQ4_NL.value, 32, 18),
    "MXFP4": (kinds.MXFP4.value, 32, 17),
    "Q2_K": (kinds.Q2_K.value, 256, 84),
    "Q3_K": (kinds.Q3_K.value, 256, 110),
    "Q4_K": (kinds.Q4_K.value, 256, 144),
    "Q5_K": (kinds.Q5_K.value, 256, 176),
    "Q6_K": (kinds.Q6_K.value, 256, 210),
    "IQ4_XS": (kinds.IQ4_XS.value, 256, 136),
}
"""Blocks of GGUF: kind, values and bytes."""

SCALES: Mapping[str, tuple[int, torch.dtype]] = {
    "float32": (kinds.FLOAT32.value, torch.float32),
    "e8m0": (kinds.E8M0.value, torch.uint8),
    "e4m3": (kinds.SCALE_E4M3.value, torch.uint8),
}
_NF4 = (
    *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635),
    *(-0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725),
    *(0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
)
_FP4 = (0.0, 0.0052083333, 0.6666666667, 1.0, 0.3333333333, 0.5, 0.1666666667, 0.25)
_IQ4 = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
TABLES: Mapping[str, tuple[float, ...]] = {
    "nf4": _NF4,
    "fp4": (*_FP4, *(-one for one in _FP4)),
    "e2m1": (*_E2M1, *(-one for one in _E2M1)),
    "gguf:IQ4_NL": _IQ4,
    "gguf:IQ4_XS": _IQ4,
}
"""Values of codes 0 to 15."""


@dataclass(frozen=True, slots=True)
class Stored:
    """Where the numbers of a weight `(outputs, inputs)` are.

    Attributes:
        kind, bits: Of the codes, for the kernels.
        row_bytes: Bytes of an output's codes.
        scale: Kind of the scales of groups; none where outputs have one scale each, which results are multiplied by.
        scale_dtype: Theirs.
        group: Inputs that share a scale.
        groups: Scales along the inputs.
        shared: Outputs that share these.
        zeros, ordered: As the form says.
        by_row: Whether every output has a float32 of its own: its scale, or that of its part.
        table: Values of the codes; empty: kernels know them.
    """

    kind: int
    bits: int
    row_bytes: int
    scale: int
    scale_dtype: torch.dtype
    group: int
    groups: int
    shared: int
    zeros: bool
    ordered: bool
    by_row: bool
    table: tuple[float, ...]

    @property
    def grouped(self) -> bool:
        """Whether there are scales of groups."""
        return self.scale != kinds.NO_SCALE.value


def stored(form: WeightForm, outputs: int, inputs: int) -> Stored:
    """Return how a weight of a form lies in memory. `inputs` of blocks of a file are whole blocks."""
    table = TABLES.get(form.codes, ()) if form.codes != "e2m1" else ()
    if form.codes.startswith("gguf:"):
        kind, values, size = BLOCKS[form.codes.removeprefix("gguf:")]
        row_bytes, none = inputs // values * size, kinds.NO_SCALE.value
        return Stored(kind, 8, row_bytes, none, torch.float32, 1, 1, 1, False, False, False, table)
    bits = form.bits if form.codes == "int" else 8 if form.codes in FLOAT8 else 4
    grouped = bool(form.inputs or form.zeros or form.ordered)
    scale, dtype = SCALES[form.scale]
    group = form.inputs or inputs
    return Stored(
        kind=CODES[form.codes],
        bits=bits,
        row_bytes=-(-inputs * bits // 8),
        scale=scale if grouped else kinds.NO_SCALE.value,
        scale_dtype=dtype,
        group=group,
        groups=-(-inputs // group),
        shared=form.outputs or outputs,
        zeros=form.zeros,
        ordered=form.ordered,
        by_row=not grouped or form.scale != "float32",
        table=table,
    )
