"""Tiny ModelOpt checkpoints for the conformance kit, written from the formats' definition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import torch
from torch import Tensor

from core.api import LayerSite
from core_testing.conformance import CheckpointSample, quantized_sample

_SITES = (
    LayerSite("embedding", "model.embed_tokens", 256, (("", 40),)),
    LayerSite("linear", "model.layers.0.self_attn", 256, (("q_proj", 256), ("k_proj", 128), ("v_proj", 128))),
    LayerSite("linear", "model.layers.0.mlp.up_proj", 256, (("", 144),), bias=True),
    LayerSite("lm_head", "lm_head", 256, (("", 40),)),
)
_LARGE = (LayerSite("linear", "model.layers.0.mlp.down_proj", 1024, (("", 1024),)),)
_TOLERANCES = {"NVFP4": 0.2, "FP8": 0.05, "FP8_PER_CHANNEL_PER_TOKEN": 0.05, "MXFP8": 0.05}
"""Relative error of products where activations are rounded."""

E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])

Stored = tuple[dict[str, Tensor], Tensor]
"""Tensors of a module by suffix, and the values that they mean."""


def samples() -> Iterator[CheckpointSample]:
    """Yield every algorithm, and a layer whose memory says something."""
    for name in ("NVFP4", "W4A16_NVFP4", "FP8", "FP8_PER_CHANNEL_PER_TOKEN", "FP8_PB_WO", "MXFP8"):
        yield _sample(name, name, _SITES)
    yield _sample("large", "W4A16_NVFP4", _LARGE)


def _sample(name: str, algorithm: str, sites: Sequence[LayerSite]) -> CheckpointSample:
    described = {"quant_method": "modelopt", "quant_algo": algorithm, "ignore": ["lm_head"]}
    tolerance = _TOLERANCES.get(algorithm, 0.0)
    return quantized_sample(name, sites, described, partial(encoded, algorithm), tolerance=tolerance)


def encoded(algorithm: str, size: tuple[int, int], rng: torch.Generator) -> Stored:
    """Return a random weight as an algorithm stores it."""
    rows, inputs = size
    if algorithm.endswith("NVFP4"):
        return _nvfp4(size, rng)
    codes = (torch.randn(size, generator=rng) * 100).clamp(-448, 448).to(torch.float8_e4m3fn)
    if algorithm == "MXFP8":
        exponents = torch.randint(115, 122, (rows, inputs // 32), generator=rng).to(torch.uint8)
        scales = torch.pow(2.0, exponents.float() - 127).repeat_interleave(32, 1)
        return {"weight": codes, "weight_scale": exponents}, codes.float() * scales
    if algorithm == "FP8_PB_WO":
        blocks = (torch.rand(-(-rows // 128), 1, -(-inputs // 128), 1, generator=rng) + 0.1) / 64
        spread = blocks[:, 0, :, 0].repeat_interleave(128, 0).repeat_interleave(128, 1)[:rows, :inputs]
        return {"weight": codes, "weight_scale": blocks}, codes.float() * spread
    scale = (torch.rand(() if algorithm == "FP8" else (rows,), generator=rng) + 0.1) / 64
    fixed = {"input_scale": torch.tensor(0.01)} if algorithm == "FP8" else {}
    return {"weight": codes, "weight_scale": scale, **fixed}, codes.float() * scale.view(-1, 1)


def _nvfp4(size: tuple[int, int], rng: torch.Generator) -> Stored:
    codes = torch.randint(0, 16, size, generator=rng)
    scales = (torch.rand(size[0], size[1] // 16, generator=rng) * 100 + 1).to(torch.float8_e4m3fn)
    whole, packed = torch.tensor(0.0003), (codes[:, ::2] | codes[:, 1::2] << 4).to(torch.uint8)
    tensors = {"weight": packed, "weight_scale": scales, "weight_scale_2": whole, "input_scale": torch.tensor(0.002)}
    return tensors, E2M1[codes] * scales.float().repeat_interleave(16, 1) * whole
