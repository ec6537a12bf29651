"""Choosing tokens by native kernels; forms as in `core.ops.sampling`."""

from __future__ import annotations

import torch
from torch import Tensor

from core_plugin_cpu.native.checks import CODES, TOKEN_IDS, check_places, shown
from core_plugin_cpu.native.entry import Entry

SCRATCH_BYTES, SCRATCH_PAD = 20, 16
"""`CORE_DRAW_SCRATCH` and `CORE_DRAW_PAD`: bytes per vocabulary entry and thread, for some entries more."""

ARGMAX = Entry("argmax", pointers="logits best places", sizes="rows size stride dtype threads")
DRAW = Entry(
    "draw",
    pointers="logits rows numbers out scratch",
    sizes="count size stride truncated dtype threads",
)


def argmax(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Return each row's best value, `(n,)` float32, and its place, `(n,)` int64, of `logits (n, vocab)`."""
    logits = _plain(logits)
    rows, size = logits.shape
    best, places = torch.empty(rows, dtype=torch.float32), torch.empty(rows, dtype=torch.int64)
    pointers = (logits.data_ptr(), best.data_ptr(), places.data_ptr())
    ARGMAX(*pointers, rows, size, logits.stride(0), CODES[logits.dtype], torch.get_num_threads())
    return best, places


def draw(logits: Tensor, rows: Tensor | None, numbers: Tensor, *, truncated: bool) -> Tensor:
    """Draw one token per entry, `(m,)` int64.

    Args:
        logits: `(n, vocab)`.
        rows: `(m,)` int64, the row of each entry; None for all rows in order.
        numbers: `(5, m)` float64: temperature, top-k, top-p, min-p, uniform number.
        truncated: Whether any entry has a top-k, top-p or min-p.
    """
    logits, numbers = _plain(logits), numbers.contiguous()
    count, size = numbers.shape[1], logits.shape[1]
    wanted = len(logits if rows is None else rows)
    if numbers.shape != (5, wanted) or numbers.dtype is not torch.float64 or not numbers.is_cpu:
        raise ValueError(f"draw: numbers (5, {wanted}) float64 expected, got {shown(numbers)}")
    if rows is not None:
        rows = rows.contiguous()
        check_places(TOKEN_IDS, rows, len(logits), "draw")
    threads = max(1, min(torch.get_num_threads(), count))
    out = torch.empty(count, dtype=torch.int64)
    # Uninitialised: pages that the few candidates of ordinary rows do not reach are never touched.
    scratch = torch.empty(threads * (size + SCRATCH_PAD) * SCRATCH_BYTES if truncated else 0, dtype=torch.uint8)
    index = 0 if rows is None else rows.data_ptr()
    pointers = (logits.data_ptr(), index, numbers.data_ptr(), out.data_ptr(), scratch.data_ptr())
    DRAW(*pointers, count, size, logits.stride(0), int(truncated), CODES[logits.dtype], threads)
    return out


def _plain(logits: Tensor) -> Tensor:
    """Return logits of a dtype and layout that the kernels read. Raises `ValueError` for what is none."""
    if logits.dim() != 2 or not logits.shape[1] or not logits.is_cpu:
        raise ValueError(f"logits (rows, vocab) on the CPU expected, got {shown(logits)}")
    if logits.dtype not in CODES:
        logits = logits.float()
    return logits if logits.stride(1) == 1 else logits.contiguous()
