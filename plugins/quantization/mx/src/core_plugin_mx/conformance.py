"""Tiny checkpoints in microscaling formats for the conformance kit, written from their definition."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from core.api import LayerSite
from core.testing.conformance import CheckpointSample

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
    return CheckpointSample(
        name,
        lambda folder: _write(sites, quantization, folder),
        values=lambda: _make(sites, quantization)[1],
        layers=sites,
        apply_tolerance=rounded.get(name, 0.0),
    )


def _write(sites: Sequence[LayerSite], quantization: Mapping[str, Any], folder: Path) -> Path:
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "vocab_size": 40}
    (folder / "config.json").write_text(json.dumps({**config, "quantization_config": quantization}))
    save_file(_make(sites, quantization)[0], folder / "model.safetensors")
    return folder


def _make(sites: Sequence[LayerSite], quantization: Mapping[str, Any]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return the tensors as stored, and the values that they mean."""
    rng = torch.Generator().manual_seed(6)
    group = quantization.get("global_quant_config", {"weight": {"dtype": "fp8_e4m3"}})
    four = group["weight"]["dtype"] == "fp4"
    stored: dict[str, Tensor] = {}
    meant: dict[str, Tensor] = {}
    for site in sites:
        for part, rows in site.parts:
            module, size = site.module(part), (rows, site.in_features)
            if site.bias:
                stored[f"{module}.bias"] = meant[f"{module}.bias"] = torch.randn(rows, generator=rng)
            if site.kind != "linear":
                stored[f"{module}.weight"] = meant[f"{module}.weight"] = torch.randn(size, generator=rng)
                continue
            exponents = torch.randint(115, 122, (rows, site.in_features // 32), generator=rng).to(torch.uint8)
            scales = torch.pow(2.0, exponents.float() - 127).repeat_interleave(32, 1)
            if four:
                codes = torch.randint(0, 16, size, generator=rng)
                packed, values = (codes[:, ::2] | codes[:, 1::2] << 4).to(torch.uint8), E2M1[codes]
            else:
                packed = (torch.randn(size, generator=rng) * 100).to(torch.float8_e4m3fn)
                values = packed.float()
            stored |= {f"{module}.weight": packed, f"{module}.weight_scale": exponents}
            meant[f"{module}.weight"] = values * scales
    return stored, meant
