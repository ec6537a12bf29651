"""Tiny compressed-tensors checkpoints for the conformance kit, written from the format's definition."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

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


def samples() -> Iterator[CheckpointSample]:
    """Yield W8A8 and W8A16 with scales per channel and per tensor, and a layer whose speed says something."""
    yield _sample("W8A8", _SITES)
    yield _sample("W8A8, one scale", _SITES, strategy="tensor")
    yield _sample("W8A16", _SITES, rounds=False)
    yield _sample("large", _LARGE)


def _sample(
    name: str, sites: Sequence[LayerSite], *, strategy: str = "channel", rounds: bool = True
) -> CheckpointSample:
    return CheckpointSample(
        name,
        lambda folder: _write(sites, strategy, rounds, folder),
        values=lambda: _make(sites, strategy)[1],
        layers=sites,
    )


def _write(sites: Sequence[LayerSite], strategy: str, rounds: bool, folder: Path) -> Path:
    int8 = {"num_bits": 8, "type": "int", "symmetric": True}
    group = {
        "targets": ["Linear"],
        "weights": {**int8, "strategy": strategy, "dynamic": False},
        "input_activations": {**int8, "strategy": "token", "dynamic": True} if rounds else None,
    }
    quantization = {
        "quant_method": "compressed-tensors",
        "format": "int-quantized",
        "config_groups": {"group_0": group},
        "ignore": ["lm_head"],
    }
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "vocab_size": 40}
    (folder / "config.json").write_text(json.dumps({**config, "quantization_config": quantization}))
    save_file(_make(sites, strategy)[0], folder / "model.safetensors")
    return folder


def _make(sites: Sequence[LayerSite], strategy: str) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return the tensors as stored, and the values that they mean."""
    rng = torch.Generator().manual_seed(6)
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
            codes = torch.randint(-127, 128, (rows, site.in_features), generator=rng).to(torch.int8)
            scale = (torch.rand(rows, 1, generator=rng) if strategy == "channel" else torch.rand(1, generator=rng)) / 64
            stored |= {f"{module}.weight": codes, f"{module}.weight_scale": scale}
            meant[f"{module}.weight"] = codes.float() * scale
    return stored, meant
