"""Tiny checkpoints with float8 weights for the conformance kit, written from the format's definition."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from core.api import LayerSite
from core_testing.conformance import CheckpointSample, RoundingSample, quantized_sample

_SITES = (
    LayerSite("embedding", "model.embed_tokens", 192, (("", 40),)),
    LayerSite("linear", "model.layers.0.self_attn", 192, (("q_proj", 136), ("k_proj", 24), ("v_proj", 24))),
    LayerSite("linear", "model.layers.0.mlp.up_proj", 192, (("", 48),), bias=True),
    LayerSite("lm_head", "lm_head", 192, (("", 40),)),
)
_LARGE = (LayerSite("linear", "model.layers.0.mlp.down_proj", 1024, (("", 1024),)),)
_BLOCKS = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128], "fmt": "e4m3"}

AUTO_ROUND = {
    "quant_method": "auto-round",
    "bits": 8,
    "data_type": "fp",
    "group_size": -1,
    "sym": True,
    "act_bits": 16,
    "act_data_type": "fp",
    "act_dynamic": True,
    "fmt": "e4m3",
    "activation_scheme": "dynamic",
    "block_name_to_quantize": "model.layers",
}
"""Weights alone."""

STATIC = {
    **AUTO_ROUND,
    "act_bits": 8,
    "act_group_size": 0,
    "act_dynamic": False,
    "activation_scheme": "static",
    "packing_format": "auto_round:fp8_static",
}

_ACTIVATIONS = 0.04
"""Relative error of a product with activations in e4m3, which has 3 bits behind the leading one."""


def samples() -> Iterator[CheckpointSample | RoundingSample]:
    """Yield each kind of scales, a layer whose memory says something, and what weights are rounded to."""
    yield _sample("blocks", _SITES, _BLOCKS)
    yield _sample("one scale", _SITES, {"quant_method": "fp8", "activation_scheme": "dynamic"})
    yield _sample("one scale, static", _SITES, {"quant_method": "fp8", "activation_scheme": "static"})
    yield _sample("outputs", _SITES, {"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0})
    yield _sample("AutoRound, weights alone", _SITES, AUTO_ROUND)
    yield _sample("AutoRound, static", _SITES, STATIC)
    yield _sample("AutoRound, blocks", _SITES, {**AUTO_ROUND, "group_size": [128, 128]})
    yield _sample("large", _LARGE, _BLOCKS)
    yield RoundingSample("float8", rounded=_rounded, tolerance=_ACTIVATIONS)


def _rounded(site: LayerSite, weight: Tensor) -> Tensor:
    if not site.inner:
        return weight
    scale = weight.abs().amax(1, keepdim=True) / 448
    return (weight / scale).to(torch.float8_e4m3fn).float() * scale


def _sample(name: str, sites: Sequence[LayerSite], quantization: Mapping[str, Any]) -> CheckpointSample:
    return quantized_sample(name, sites, quantization, partial(encoded, quantization), tolerance=_ACTIVATIONS)


def encoded(
    quantization: Mapping[str, Any], size: tuple[int, int], rng: torch.Generator
) -> tuple[dict[str, Tensor], Tensor]:
    """Return a random weight as a checkpoint stores it, and the values that it means."""
    codes = (torch.randn(size, generator=rng) * 100).clamp(-448, 448).to(torch.float8_e4m3fn)
    name, scale, spread = _scales(size, quantization, rng)
    tensors = {"weight": codes, name: scale}
    if quantization.get("activation_scheme") == "static":
        tensors["input_scale"] = torch.rand((), generator=rng) / 100 + 0.01
    return tensors, codes.float() * spread


def _scales(size: tuple[int, int], quantization: Mapping[str, Any], rng: torch.Generator) -> tuple[str, Tensor, Tensor]:
    """Return the name of a weight's scales, these, and that of each of its numbers."""
    rows, inputs = size
    size_of = quantization.get("group_size", quantization.get("weight_block_size"))
    if isinstance(block := size_of, list):
        scale = (torch.rand(-(-rows // block[0]), -(-inputs // block[1]), generator=rng) + 0.1) / 64
        spread = scale.repeat_interleave(block[0], 0).repeat_interleave(block[1], 1)[:rows, :inputs]
        return "weight_scale" if "group_size" in quantization else "weight_scale_inv", scale, spread
    if quantization["quant_method"] == "auto-round":
        scale = ((torch.rand(rows, generator=rng) + 0.1) / 64).bfloat16()
        return "weight_scale", scale, scale.float().unsqueeze(1)
    shape = (rows, 1) if quantization["quant_method"] == "fbgemm_fp8" else ()
    scale = (torch.rand(shape, generator=rng) + 0.1) / 64
    return "weight_scale", scale, scale
