"""Flags of block formats' products (`csrc/cpu/gemm/gemm.h`), which are added to a format. Torch-free."""

from __future__ import annotations

BY_ROW = 1 << 8
"""A row gives the same, bit for bit, however many rows are computed with it."""

COARSE = 1 << 9
"""Where activations are rounded to integers, to 8 bits; without it, to 15 bits where that takes little longer."""

FINE = 1 << 10
"""To 15 bits in any case."""

ASKED = BY_ROW | COARSE | FINE
"""All of them."""
