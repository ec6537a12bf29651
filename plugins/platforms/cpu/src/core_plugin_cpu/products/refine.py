"""Checks that the products' data cannot express. Torch-free."""

from __future__ import annotations

import re

from core.api import KernelRequest, ProbeResult, Verdict

_GROUPS = re.compile(r"int4/1x(\d+|all):")
_BLOCKS = re.compile(r"float8_\w+/\w+?x(\d+):")
_TABLES = re.compile(r"(?:nf4|fp4)/1x(\d+|all):")
_BLOCK, _TABLE_GROUP = 32, 64


def product(request: KernelRequest, probe: ProbeResult) -> Verdict:
    """Refuse groups that are no whole blocks of 32 inputs: `cpu_dense_linear` opens them."""
    return Verdict.of(*_group_faults(request))


def experts(request: KernelRequest, probe: ProbeResult) -> Verdict:
    """Refuse these groups, and inputs in an order of each expert's own: `cpu_dense_experts_in` and `_out` open them."""
    ordered = "+ordered@" in request.form
    return Verdict.of(
        *_group_faults(request),
        "inputs are rearranged (act-order), for each expert in another way" if ordered else None,
    )


def _group_faults(request: KernelRequest) -> tuple[str | None, ...]:
    if blocks := _BLOCKS.match(request.form):
        size = int(blocks[1])
        return (f"scales of {size} inputs are of no whole blocks of {_BLOCK}" if size % _BLOCK else None,)
    inputs = request.dims.get("inputs", 0)
    if request.form.startswith("e2m1/"):
        return (f"{inputs} inputs are no whole blocks of {_BLOCK}" if inputs % _BLOCK else None,)
    if table := _TABLES.match(request.form):
        size = inputs if table[1] == "all" else int(table[1])
        whole = table[1] != "all" and size % _TABLE_GROUP == 0
        return (None if whole else f"scales of {size} inputs are of no whole groups of {_TABLE_GROUP}",)
    found = _GROUPS.match(request.form)
    size = 0 if found is None else inputs if found[1] == "all" else int(found[1])
    return (
        f"groups of {size} inputs are no whole blocks of {_BLOCK}" if size % _BLOCK else None,
        f"{inputs} inputs are no whole groups of {size}" if size and inputs % size else None,
    )
