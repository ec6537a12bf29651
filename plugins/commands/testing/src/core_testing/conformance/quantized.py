"""Tiny checkpoints of quantization methods, for the samples of their formats."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core_testing.conformance.device_samples import CheckpointSample

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from core.api.quantization import LayerSite

Encoded = Callable[[tuple[int, int], "torch.Generator"], tuple[dict[str, "Tensor"], "Tensor"]]
"""Size of a weight and a source of random numbers -> its tensors by suffix, and the values that they mean."""


def quantized_sample(
    name: str,
    sites: Sequence[LayerSite],
    quantization: Mapping[str, Any],
    encoded: Encoded,
    *,
    tolerance: float = 0.0,
) -> CheckpointSample:
    """Return a safetensors checkpoint with random weights, of which the linear layers are quantized.

    Args:
        quantization: Its `quantization_config`.
        encoded: Makes a random weight as the format stores it.
        tolerance: `CheckpointSample.apply_tolerance`.
    """

    def write(folder: Path) -> Path:
        from safetensors.torch import save_file

        sizes = {"hidden_size": sites[0].in_features, "vocab_size": 40}
        config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", **sizes}
        (folder / "config.json").write_text(json.dumps({**config, "quantization_config": quantization}))
        save_file(_tensors(sites, encoded)[0], folder / "model.safetensors")
        return folder

    return CheckpointSample(
        name, write, values=lambda: _tensors(sites, encoded)[1], layers=sites, apply_tolerance=tolerance
    )


def _tensors(sites: Sequence[LayerSite], encoded: Encoded) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return the tensors as stored, and the values that they mean, the same ones each time."""
    import torch

    rng = torch.Generator().manual_seed(6)
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
            tensors, meant[f"{module}.weight"] = encoded(size, rng)
            stored |= {f"{module}.{suffix}": one.contiguous() for suffix, one in tensors.items()}
    return stored, meant
