"""Tiny AWQ checkpoints for the conformance kit, written from the format's definition."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from core.api import LayerSite
from core.testing.conformance import CheckpointSample
from core_plugin_awq.config import ORDER

_SITES = (
    LayerSite("embedding", "model.embed_tokens", 64, (("", 40),)),
    LayerSite("linear", "model.layers.0.self_attn", 64, (("q_proj", 64), ("k_proj", 32), ("v_proj", 32))),
    LayerSite("linear", "model.layers.0.mlp.up_proj", 64, (("", 48),), bias=True),
    LayerSite("lm_head", "lm_head", 64, (("", 40),)),
)
_LARGE = (LayerSite("linear", "model.layers.0.mlp.down_proj", 1024, (("", 1024),)),)


def samples() -> Iterator[CheckpointSample]:
    """Yield small layers in groups of 32 and of all inputs, and a layer whose speed says something."""
    for name, size, sites in (("groups of 32", 32, _SITES), ("one group", -1, _SITES), ("large", 128, _LARGE)):
        yield CheckpointSample(name, partial(_write, sites, size), values=partial(_values, sites, size), layers=sites)


def _write(sites: Sequence[LayerSite], size: int, folder: Path) -> Path:
    quantization = {"quant_method": "awq", "bits": 4, "group_size": size, "zero_point": True, "version": "gemm"}
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "vocab_size": 40}
    (folder / "config.json").write_text(json.dumps({**config, "quantization_config": quantization}))
    save_file(_make(sites, size)[0], folder / "model.safetensors")
    return folder


def _values(sites: Sequence[LayerSite], size: int) -> dict[str, Tensor]:
    return _make(sites, size)[1]


def _make(sites: Sequence[LayerSite], size: int) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return the tensors as stored, and the values that they mean."""
    rng = torch.Generator().manual_seed(4)
    stored: dict[str, Tensor] = {}
    meant: dict[str, Tensor] = {}
    for site in sites:
        for part, rows in site.parts:
            module = f"{site.prefix}.{part}" if part else site.prefix
            if site.bias:
                stored[f"{module}.bias"] = meant[f"{module}.bias"] = torch.randn(rows, generator=rng)
            if site.kind != "linear":
                stored[f"{module}.weight"] = meant[f"{module}.weight"] = torch.randn(
                    rows, site.in_features, generator=rng
                )
                continue
            groups = 1 if size == -1 else site.in_features // size
            codes = torch.randint(0, 16, (site.in_features, rows), generator=rng)
            zeros = torch.randint(4, 12, (groups, rows), generator=rng)
            scales = (torch.rand(groups, rows, generator=rng) + 0.5).half()
            stored |= {f"{module}.qweight": _pack(codes), f"{module}.qzeros": _pack(zeros), f"{module}.scales": scales}
            each = site.in_features // groups
            weight = (codes - zeros.repeat_interleave(each, 0)) * scales.float().repeat_interleave(each, 0)
            meant[f"{module}.weight"] = weight.t().contiguous()
    return stored, meant


def _pack(values: Tensor) -> Tensor:
    """Return `values (rows, columns)` of four bits as words of eight columns."""
    words = torch.zeros(values.shape[0], values.shape[1] // 8, dtype=torch.int64)
    for nibble, column in enumerate(ORDER):
        words |= values[:, column::8] << (4 * nibble)
    return words.to(torch.int32)
