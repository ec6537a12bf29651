"""Random blocks of GGUF's types, as files have them, and the values that their definitions give."""

from __future__ import annotations

import pytest
import torch
from core_plugin_cpu.native.blocks import FORMATS

MINIMUM = {"Q4_1", "Q5_1", "Q4_K", "Q5_K"}
BEHIND = {"Q3_K": (108,), "Q6_K": (208,)}
"""Where types have their scales that do not begin with them."""
FEW_BITS = {"Q1_0": (128, 1), "Q2_0": (64, 2)}
"""Values of a block and bits of a code, of types that gguf's Python package does not decode."""


def set_scales(blocks, kind, halves):
    """Write scales, drawn by `halves()` as two bytes each, where blocks `(..., stored)` of a type have them."""
    if kind in ("MXFP4", "NVFP4"):
        # Powers of two from 1/4 to 4; e4m3 from about 1/8 to 8.
        exponents = torch.randint(125, 130, blocks.shape[:-1], dtype=torch.uint8)
        if kind == "MXFP4":
            blocks[..., 0] = exponents
        else:
            blocks[..., :4] = (exponents.unsqueeze(-1) - 120 << 3) | (blocks[..., :4] & 7)
        return
    for at in BEHIND.get(kind, (0, 2) if kind in MINIMUM else (0,)):
        blocks[..., at : at + 2] = halves()


def stored_blocks(kind, n, k):
    """Random bytes with scales that are numbers."""
    layout = FORMATS[kind]
    raw = torch.randint(0, 256, (n, k // layout.values, layout.stored), dtype=torch.uint8)
    set_scales(raw, kind, lambda: ((torch.rand(n, k // layout.values, 1) - 0.5).half() / 4).view(torch.uint8))
    return raw.flatten(1)


def decoded(raw, kind, k):
    """The values by ggml's reference, float64; of `FEW_BITS` by definition: codes from the lowest bits on."""
    if kind in FEW_BITS:
        return _few_bits(raw, *FEW_BITS[kind]).view(len(raw), k)
    quants = pytest.importorskip("gguf.quants")
    constants = pytest.importorskip("gguf.constants")
    values = quants.dequantize(raw.numpy(), constants.GGMLQuantizationType[kind])
    return torch.from_numpy(values).double().view(raw.shape[0], k)


def _few_bits(raw, values, bits):
    blocks = raw.view(-1, 2 + values * bits // 8)
    scales = blocks[:, :2].contiguous().view(torch.float16).double()
    words = blocks[:, 2:].long()
    codes = torch.stack([words >> shift & (1 << bits) - 1 for shift in range(0, 8, bits)], dim=-1).flatten(1)
    return scales * (2 * codes - 1 if bits == 1 else codes - 1)
