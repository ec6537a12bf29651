"""Samples of quantized checkpoints, for the tests of formats: held against what they mean, and changed."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from core_testing.layers import sample_layer

if TYPE_CHECKING:
    from torch import Tensor

    from core.api.quantization import Format
    from core_testing.conformance.device_samples import CheckpointSample


def compare_sample(
    form: type[Format], sample: CheckpointSample, folder: Path, rounds: Callable[[Tensor], Tensor] | None = None
) -> None:
    """Hold each linear layer of a sample against the values that it means.

    Args:
        folder: An empty directory for the checkpoint.
        rounds: How activations are rounded.

    Raises:
        AssertionError: A layer gives something else.
    """
    values = sample.values() if sample.values else {}
    for site in [one for one in sample.layers if one.kind in ("linear", "lm_head")]:
        weight = torch.cat([values[f"{site.module(name)}.weight"] for name, _ in site.parts])
        bias = values[f"{site.prefix}.bias"] if site.bias else 0
        x = torch.randn(5, site.in_features, generator=torch.Generator().manual_seed(1))
        expected = (rounds(x) if rounds else x) @ weight.T + bias
        largest = expected.abs().max().item()
        layer = sample_layer(form, sample, site, folder)
        torch.testing.assert_close(layer(x), expected, rtol=1e-5, atol=1e-5 * largest)


def redescribed(
    sample: CheckpointSample,
    tensors: Mapping[str, Tensor] | None = None,
    *,
    without: Collection[str] = (),
    **settings: object,
) -> CheckpointSample:
    """Return a sample with other settings in its `quantization_config`, and other tensors or fewer."""

    from safetensors.torch import load_file, save_file

    def write(folder: Path) -> Path:
        path = sample.write(folder)
        config = json.loads((path / "config.json").read_text())
        config["quantization_config"] |= settings
        (path / "config.json").write_text(json.dumps(config))
        stored = {**load_file(path / "model.safetensors"), **(tensors or {})}
        save_file({name: one for name, one in stored.items() if name not in without}, path / "model.safetensors")
        return path

    return replace(sample, write=write)
