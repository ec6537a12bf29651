"""Tiny checkpoints with float8 weights for the conformance kit, written from the format's definition."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from core.api import LayerSite
from core.testing.conformance import CheckpointSample, RoundingSample

_SITES = (
    LayerSite("embedding", "model.embed_tokens", 192, (("", 40),)),
    LayerSite("linear", "model.layers.0.self_attn", 192, (("q_proj", 136), ("k_proj", 24), ("v_proj", 24))),
    LayerSite("linear", "model.layers.0.mlp.up_proj", 192, (("", 48),), bias=True),
    LayerSite("lm_head", "lm_head", 192, (("", 40),)),
)
_LARGE = (LayerSite("linear", "model.layers.0.mlp.down_proj", 1024, (("", 1024),)),)
_BLOCKS = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128], "fmt": "e4m3"}

_ACTIVATIONS = 0.04
"""Relative error of a product with activations in e4m3, which has 3 bits behind the leading one."""


def samples() -> Iterator[CheckpointSample | RoundingSample]:
    """Yield each kind of scales, a layer whose memory says something, and what weights are rounded to."""
    yield _sample("blocks", _SITES, _BLOCKS)
    yield _sample("one scale", _SITES, {"quant_method": "fp8", "activation_scheme": "dynamic"})
    yield _sample("one scale, static", _SITES, {"quant_method": "fp8", "activation_scheme": "static"})
    yield _sample("outputs", _SITES, {"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0})
    yield _sample("large", _LARGE, _BLOCKS)
    yield RoundingSample("float8", rounded=_rounded, tolerance=_ACTIVATIONS)


def _rounded(site: LayerSite, weight: Tensor) -> Tensor:
    if not site.inner:
        return weight
    scale = weight.abs().amax(1, keepdim=True) / 448
    return (weight / scale).to(torch.float8_e4m3fn).float() * scale


def _sample(name: str, sites: Sequence[LayerSite], quantization: Mapping[str, Any]) -> CheckpointSample:
    return CheckpointSample(
        name,
        lambda folder: _write(sites, quantization, folder),
        values=lambda: _make(sites, quantization)[1],
        layers=sites,
        apply_tolerance=_ACTIVATIONS,
    )


def _write(sites: Sequence[LayerSite], quantization: Mapping[str, Any], folder: Path) -> Path:
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 192, "vocab_size": 40}
    (folder / "config.json").write_text(json.dumps({**config, "quantization_config": quantization}))
    save_file(_make(sites, quantization)[0], folder / "model.safetensors")
    return folder


def _make(sites: Sequence[LayerSite], quantization: Mapping[str, Any]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return the tensors as stored, and the values that they mean."""
    rng = torch.Generator().manual_seed(6)
    stored: dict[str, Tensor] = {}
    meant: dict[str, Tensor] = {}
    for site in sites:
        for part, rows in site.parts:
            module, size = site.module(part), (rows, site.in_features)
            if site.bias:
                stored[f"{module}.bias"] = meant[f"{module}.bias"] = torch.randn(rows, generator=rng)
            values = torch.randn(size, generator=rng)
            if site.kind != "linear":
                stored[f"{module}.weight"] = meant[f"{module}.weight"] = values
                continue
            codes = (values * 100).to(torch.float8_e4m3fn)
            name, scale, spread = _scales(size, quantization, rng)
            stored |= {f"{module}.weight": codes, f"{module}.{name}": scale}
            if quantization.get("activation_scheme") == "static":
                stored[f"{module}.input_scale"] = torch.rand((), generator=rng) / 100 + 0.01
            meant[f"{module}.weight"] = codes.float() * spread
    return stored, meant


def _scales(size: tuple[int, int], quantization: Mapping[str, Any], rng: torch.Generator) -> tuple[str, Tensor, Tensor]:
    """Return the name of a weight's scales, these, and that of each of its numbers."""
    rows, inputs = size
    if block := quantization.get("weight_block_size"):
        scale = (torch.rand(-(-rows // block[0]), -(-inputs // block[1]), generator=rng) + 0.1) / 64
        spread = scale.repeat_interleave(block[0], 0).repeat_interleave(block[1], 1)[:rows, :inputs]
        return "weight_scale_inv", scale, spread
    shape = (rows, 1) if quantization["quant_method"] == "fbgemm_fp8" else ()
    scale = (torch.rand(shape, generator=rng) + 0.1) / 64
    return "weight_scale", scale, scale
