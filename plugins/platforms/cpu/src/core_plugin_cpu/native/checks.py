"""Comparisons before native calls: kernels read and write by the sizes, pointers and places that they are given.

Sizes and dtypes are compared here, in Python. Numbers that are places (token ids, positions, slots, blocks) are looked
at by native calls, which a program makes like all others, but each only once.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from core_plugin_cpu.native.entry import BFLOAT16, FLOAT32, Entry, recorder

CODES = {torch.float32: FLOAT32, torch.bfloat16: BFLOAT16}
"""Dtypes that the kernels compute with."""


def _range(slot: str) -> Entry:
    slots = {"values": slot, "count": "tokens"}
    return Entry("range", pointers="values", sizes="count limit", slots=slots, result=True)


TOKEN_IDS, POSITIONS = _range("token_ids"), _range("positions")
BATCH = Entry(
    "batch",
    pointers="query_starts seq_lens table slots",
    sizes="rows tokens table_stride table_width block_size blocks",
    slots={
        name: name
        for name in ("query_starts", "seq_lens", "table", "slots", "rows", "tokens", "table_stride", "table_width")
    },
    result=True,
)
STATE_ROWS = Entry(
    "state_rows",
    pointers="state_slots fresh query_starts",
    sizes="rows tokens slots",
    slots={
        "state_slots": "state_slots",
        "fresh": "fresh",
        "query_starts": "state_starts",
        "rows": "state_rows",
        "tokens": "tokens",
    },
    result=True,
)
PICKED = Entry(
    "picked",
    pointers="picked query_starts seq_lens",
    sizes="rows picks ratio",
    slots={name: name for name in ("query_starts", "seq_lens", "rows")},
    result=True,
)
_NAMES = {"token_ids": "rows of a table", "positions": "positions"}
CHECKS = (TOKEN_IDS, POSITIONS, BATCH, PICKED, STATE_ROWS)
"""Calls that compute nothing, so that one of several equal ones is enough."""


def code(x: Tensor, what: str) -> int:
    """Return the kernels' number of the dtype of `x`.

    Raises:
        ValueError: It is neither float32 nor bfloat16, or not in the host's memory.
    """
    found = CODES.get(x.dtype)
    if found is None or not x.is_cpu:
        raise ValueError(f"{what}: float32 or bfloat16 on the CPU expected, got {shown(x)}")
    return found


def unfit(what: str, **given: object) -> ValueError:
    """Return the error that tells the sizes of tensors that do not belong together."""
    return ValueError(f"{what}: {', '.join(f'{name} {shown(one)}' for name, one in given.items())} do not fit")


def check_places(entry: Entry, values: Tensor, limit: int, what: str) -> None:
    """Refuse numbers `(count,)` int64 that are no places among `limit`.

    Raises:
        ValueError: They are not contiguous int64 numbers of one dimension in the host's memory.
        IndexError: One of them is outside 0 to `limit - 1`.
    """
    if values.dtype is not torch.int64 or values.dim() != 1 or not values.is_cpu or not values.is_contiguous():
        raise ValueError(f"{what}: contiguous (count,) int64 on the CPU expected, got {shown(values)}")
    arguments = (values.data_ptr(), values.shape[0], limit)
    if entry(*arguments):
        raise IndexError(explain(entry, dict(zip(entry.fields, arguments))))


def recording() -> bool:
    """Whether the calls of this thread are being recorded."""
    return recorder.get() is not None


def explain(entry: Entry, given: Mapping[str, float]) -> str:
    """Say what a check that refused its arguments has found."""
    fields = {name: int(value) for name, value in given.items()}
    if entry is BATCH:
        return _explain_batch(fields)
    if entry is STATE_ROWS:
        starts = _read(fields["query_starts"], fields["rows"] + 1, np.int32)
        slots = _read(fields["state_slots"], fields["rows"], np.int64)
        return _wrong_rows(starts, fields["tokens"]) or _outside("slots of states", slots, fields["slots"])
    if entry is PICKED:
        return _explain_picked(fields)
    return _outside(_NAMES[entry.slots["values"]], _read(fields["values"], fields["count"], np.int64), fields["limit"])


def shown(x: object) -> str:
    """Return shape, dtype and device of a tensor, or the type of anything else."""
    return f"{tuple(x.shape)} {x.dtype} on {x.device}" if isinstance(x, Tensor) else type(x).__name__


def _explain_batch(fields: Mapping[str, int]) -> str:
    rows, tokens, blocks, size = (fields[name] for name in ("rows", "tokens", "blocks", "block_size"))
    starts, lengths = _read(fields["query_starts"], rows + 1, np.int32), _read(fields["seq_lens"], rows, np.int32)
    counts = np.diff(starts)
    if wrong := _wrong_rows(starts, tokens):
        return wrong
    room = fields["table_width"] * size
    long = np.flatnonzero((lengths < counts) | (lengths > room))
    if len(long):
        row = int(long[0])
        return f"row {row} has {lengths[row]} tokens, {counts[row]} of them in this step; its block table holds {room}"
    for row, length in enumerate(lengths.tolist()):
        table = _read(fields["table"] + 4 * row * fields["table_stride"], -(-length // size), np.int32)
        if ((table < 0) | (table >= blocks)).any():
            return _outside(f"blocks of row {row}", table, blocks)
    return _outside("slots", _read(fields["slots"], tokens, np.int64), blocks * size)


def _explain_picked(fields: Mapping[str, int]) -> str:
    starts = _read(fields["query_starts"], fields["rows"] + 1, np.int32)
    lengths = _read(fields["seq_lens"], fields["rows"], np.int32)
    picked = _read(fields["picked"], int(starts[-1]) * fields["picks"], np.int32).reshape(-1, fields["picks"])
    for token, places in enumerate(picked):
        row = int(np.searchsorted(starts, token, side="right")) - 1
        position = int(lengths[row] - starts[row + 1]) + token
        last = (position + 1) // fields["ratio"] - 1
        wrong = places[(places < -1) | (places > last)]
        if len(wrong):
            return f"picked positions: {wrong[0]} for token {token}, at position {position}; -1 to {last} expected"
    return "picked positions: one was none of its row's"


def _wrong_rows(starts: np.ndarray, tokens: int) -> str:
    """Say that rows do not share the tokens of a step in order; empty if they do."""
    counts = np.diff(starts)
    if starts[0] == 0 and starts[-1] == tokens and (counts >= 0).all():
        return ""
    return f"the rows of the step have {counts.tolist()} tokens, which are not its {tokens}"


def _outside(what: str, values: np.ndarray, limit: int) -> str:
    wrong = np.flatnonzero((values < 0) | (values >= limit))
    if not len(wrong):
        return f"{what}: a number was outside 0 to {limit - 1}"
    place = int(wrong[0])
    return f"{what}: number {place} of {len(values)} is {values[place]}, outside 0 to {limit - 1}"


def _read(address: int, count: int, dtype: type) -> np.ndarray:
    if not count:
        return np.zeros(0, dtype)
    return np.frombuffer((ctypes.c_char * (count * np.dtype(dtype).itemsize)).from_address(address), dtype=dtype)
