"""Choosing tokens; forms as in `core.ops.sampling`.

Random numbers come from the host, and draws add up whole numbers (see `kernels/draw.py`), so a row draws what it draws
on the host processor, but for a uniform number within about 1e-6 of the edge between two tokens.
"""

from __future__ import annotations

import torch
from torch import Tensor

from core_plugin_kernels_triton.launch import launch
from core_plugin_kernels_triton.ops.kernels import draw as drawing
from core_plugin_kernels_triton.ops.kernels.argmax import best_of_rows, best_of_sections
from core_plugin_kernels_triton.ops.tiles import power_of_two, tiles, tiling


def argmax(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Return each row's best value, `(n,)` float32, and its place, `(n,)` int64, of `logits (n, vocab)`."""
    rows, size = logits.shape
    sections = -(-size // tiles(logits.device)["argmax"]["section"])
    best = torch.empty(rows, dtype=torch.float32, device=logits.device)
    places = torch.empty(rows, dtype=torch.int64, device=logits.device)
    if rows:
        shape = (rows, sections)
        one = sections == 1  # then its best is the row's
        section_best = best.view(shape) if one else torch.empty(shape, dtype=best.dtype, device=best.device)
        section_places = places.view(shape) if one else torch.empty(shape, dtype=places.dtype, device=best.device)
        launch_argmax(logits, section_best, section_places, best, places)
    return best, places


@launch("Tensor logits, Tensor(a!) section_best, Tensor(b!) section_places, Tensor(c!) best, Tensor(d!) places")
def launch_argmax(logits: Tensor, section_best: Tensor, section_places: Tensor, best: Tensor, places: Tensor) -> None:
    """Write the best of each section of the vocabulary, then the best of these."""
    logits = logits if logits.stride(1) == 1 else logits.contiguous()
    (rows, size), sections = logits.shape, section_best.shape[1]
    sizes = tiles(logits.device)["argmax"]
    section = sizes["section"]
    tile = tiling(min(size, section), sizes, rows)
    best_of_sections[(-(-rows // tile.rows), sections)](
        *(logits, section_best, section_places, rows, size, logits.stride(0), section, sections),
        ROWS=tile.rows,
        BLOCK=tile.block,
        num_warps=tile.warps,
    )
    if sections > 1:
        each = min(max(1, 1024 // power_of_two(sections)), power_of_two(rows))
        best_of_rows[(-(-rows // each),)](
            *(section_best, section_places, best, places, rows, sections),
            ROWS=each,
            SECTIONS=power_of_two(sections),
            num_warps=1,
        )


def draw(logits: Tensor, rows: Tensor | None, numbers: Tensor, *, truncated: bool) -> Tensor:
    """Draw one token per entry, `(m,)` int64, after top-k, top-p and min-p.

    Args:
        logits: `(n, vocab)`.
        rows: `(m,)` int64, the row of each entry; None for all rows in order.
        numbers: `(5, m)` float64: temperature, top-k, top-p, min-p, uniform number.
        truncated: Whether any entry has a top-k, top-p or min-p.
    """
    out = torch.empty(numbers.shape[1], dtype=torch.int64, device=logits.device)
    if len(out):
        launch_draw(logits, rows, numbers, out, truncated)
    return out


@launch("Tensor logits, Tensor? rows, Tensor numbers, Tensor(a!) out, bool truncated")
def launch_draw(logits: Tensor, rows: Tensor | None, numbers: Tensor, out: Tensor, truncated: bool) -> None:
    """Write the tokens to `out`."""
    logits = logits if logits.stride(1) == 1 else logits.contiguous()
    size = logits.shape[1]
    tile = tiling(size, tiles(logits.device)["draw"], len(out))
    drawing.draw[(-(-len(out) // tile.rows),)](
        *(logits, None if rows is None else rows.contiguous(), numbers.contiguous(), out),
        *(len(out), size, logits.stride(0)),
        INDEXED=rows is not None,
        TRUNCATED=truncated,
        ROWS=tile.rows,
        BLOCK=tile.block,
        num_warps=tile.warps,
    )
