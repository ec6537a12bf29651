"""Samples of quantized checkpoints, for the tests of every format here."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

from core.testing.layers import sample_layer


@pytest.fixture
def sample_close():
    """`sample_close(format, sample, folder)` holds each layer of a sample against the values that it means."""

    def check(form, sample, folder, rounds=None):
        values = sample.values()
        for site in [one for one in sample.layers if one.kind in ("linear", "lm_head")]:
            weight = torch.cat([values[f"{site.module(name)}.weight"] for name, _ in site.parts])
            bias = values[f"{site.prefix}.bias"] if site.bias else 0
            x = torch.randn(5, site.in_features, generator=torch.Generator().manual_seed(1))
            expected = (rounds(x) if rounds else x) @ weight.T + bias
            largest = expected.abs().max().item()
            layer = sample_layer(form, sample, site, folder)
            torch.testing.assert_close(layer(x), expected, rtol=1e-5, atol=1e-5 * largest)

    return check


@pytest.fixture
def described():
    """`described(sample, tensors, without=..., **settings)` -> the sample with other settings, and other tensors."""

    def make(sample, tensors=None, *, without=(), **settings):
        def write(folder):
            from safetensors.torch import load_file, save_file

            path = sample.write(folder)
            config = json.loads((path / "config.json").read_text())
            config["quantization_config"] |= settings
            (path / "config.json").write_text(json.dumps(config))
            stored = load_file(path / "model.safetensors") | (tensors or {})
            save_file({k: v for k, v in stored.items() if k not in without}, path / "model.safetensors")
            return path

        return replace(sample, write=write)

    return make
