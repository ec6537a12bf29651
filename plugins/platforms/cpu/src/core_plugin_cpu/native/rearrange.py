"""Weights brought into panels by native code (`csrc/cpu/pack`)."""

from __future__ import annotations

import torch
from torch import Tensor

from core_plugin_cpu.native.blocks import PANEL
from core_plugin_cpu.native.entry import Entry

FIELDS = "n k row_bytes panel_bytes format threads"
PACK = Entry("pack", pointers="source out", sizes=FIELDS)
PACK_BLOCKS = Entry("pack_blocks", pointers="source out", sizes=FIELDS, result=True)

LINE = 64
"""Bytes of a line: a word of four bytes of each row of a panel."""

_WORDS = 0


def words(rows: Tensor, out: Tensor) -> None:
    """Write `rows (n, bytes)` into `out (panels, lines, 16, 4)`, both uint8: a line is one word of each row.

    Lines behind the last of a row are left as they are; rows that the last panel lacks are zeros.
    """
    rows = dense(rows)
    count = rows.shape[1] // 4
    PACK(rows.data_ptr(), out.data_ptr(), rows.shape[0], count, rows.stride(0), out[0].nbytes, _WORDS, _threads())


def codes(rows: Tensor, bits: int) -> Tensor:
    """Return `rows (n, blocks, 32)` of unsigned codes of 1 to 6 or of 8 bits as lines `(panels, blocks, bytes)`."""
    n, blocks, inputs = rows.shape
    out = torch.empty(-(-n // PANEL), blocks, inputs // 4 * LINE * bits // 8, dtype=torch.uint8)
    flat = dense(rows.reshape(n, blocks * inputs))
    if bits == 8:
        words(flat, out.view(len(out), -1, PANEL, 4))
    else:
        size = out[0].nbytes
        PACK(flat.data_ptr(), out.data_ptr(), n, blocks * inputs, flat.stride(0), size, bits, _threads())
    return out


def file_blocks(rows: Tensor, k: int, kind: int, panel_bytes: int, out: Tensor) -> bool:
    """Pack `rows (n, bytes)` of a file's blocks with `k` values a row into `out`; return whether `kind` is known."""
    rows = dense(rows)
    done = PACK_BLOCKS(rows.data_ptr(), out.data_ptr(), rows.shape[0], k, rows.stride(0), panel_bytes, kind, _threads())
    return done == 0


def dense(rows: Tensor) -> Tensor:
    """Return rows whose values follow each other: a transposed matrix is copied."""
    return rows if rows.stride(-1) == 1 else rows.contiguous()


def _threads() -> int:
    return torch.get_num_threads()
