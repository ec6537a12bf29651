"""Tiny checkpoints in microscaling formats for the conformance kit, written from their definition."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from core.api import LayerSite
from core_testing.conformance import CheckpointSample, quantized_sample

_SITES = (
    LayerSite("embedding", "model.embed_tokens", 64, (("", 40),)),
    LayerSite("linear", "model.layers.0.self_attn", 64, (("q_proj", 64), ("k_proj", 32), ("v_proj", 32))),
    LayerSite("linear", "model.layers.0.mlp.up_proj", 64, (("", 48),), bias=True),
    LayerSite("lm_head", "lm_head", 64, (("", 40),)),
)
_LARGE = (LayerSite("linear", "model.layers.0.mlp.down_proj", 1024, (("", 1024),)),)
_NUMBERS = {"qscheme": "per_group", "group_size": 32, "scale_format": "e8m0", "ch_axis": -1}
E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def samples() -> Iterator[CheckpointSample]:
    """Yield weights of 4 and of 8 bits, activations rounded or not, and a layer whose memory says something."""
    yield _sample("MXFP4", _SITES, quark("fp4"))
    yield _sample("MXFP4, activations too", _SITES, quark("fp4", "fp4"))
    yield _sample("MXFP8", _SITES, {"quant_method": "mxfp8"})
    yield _sample("MXFP8, activations too", _SITES, quark("fp8_e4m3", "fp8_e4m3"))
    yield _sample("large", _LARGE, quark("fp4"))


def quark(weights: str, activations: str = "") -> dict[str, Any]:
    """Return a `quantization_config` as Quark writes it."""
    inputs = {"dtype": activations, "is_dynamic": True, **_NUMBERS} if activations else None
    group = {"weight": {"dtype": weights, "is_dynamic": False, **_NUMBERS}, "input_tensors": inputs}
    return {"quant_method": "quark", "global_quant_config": group, "exclude": ["lm_head"]}


def _sample(name: str, sites: Sequence[LayerSite], quantization: Mapping[str, Any]) -> CheckpointSample:
    rounded = {"MXFP4, activations too": 0.25, "MXFP8, activations too": 0.05}
    return quantized_sample(name, sites, quantization, partial(encoded, quantization), tolerance=rounded.get(name, 0.0))


def encoded(
    quantization: Mapping[str, Any], size: tuple[int, int], rng: torch.Generator
) -> tuple[dict[str, Tensor], Tensor]:
    """Return a random weight as a checkpoint stores it, and the values that it means."""
    group = quantization.get("global_quant_config", {"weight": {"dtype": "fp8_e4m3"}})
    exponents = torch.randint(115, 122, (size[0], size[1] // 32), generator=rng).to(torch.uint8)
    scales = torch.pow(2.0, exponents.float() - 127).repeat_interleave(32, 1)
    if group["weight"]["dtype"] == "fp4":
        codes = torch.randint(0, 16, size, generator=rng)
        packed, values = (codes[:, ::2] | codes[:, 1::2] << 4).to(torch.uint8), E2M1[codes]
    else:
        packed = (torch.randn(size, generator=rng) * 100).clamp(-448, 448).to(torch.float8_e4m3fn)
        values = packed.float()
    return {"weight": packed, "weight_scale": exponents}, values * scales
