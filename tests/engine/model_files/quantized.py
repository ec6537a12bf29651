"""A tiny model in every form that a quantization method reads, made anew from a seed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from core_plugin_bitsandbytes import conformance as bitsandbytes
from core_plugin_compressed_tensors import conformance as compressed
from core_plugin_modelopt import conformance as modelopt
from core_plugin_mx import conformance as mx
from safetensors.torch import load_file, save_file
from test_formats_on_models import FORMATS, linear

from core_testing.tinymodels import tiny_llama

SIZES = {"num_hidden_layers": 2, "max_position_embeddings": 64, "intermediate_size": 128}

Store = Callable[[str, torch.Tensor], dict[str, torch.Tensor]]


@dataclass(frozen=True)
class Form:
    """A `quantization_config`, what is stored of a module's weight, and options of the method."""

    settings: dict[str, Any]
    store: Store
    options: dict[str, Any] = field(default_factory=dict)


def _rounded(form: Any) -> Form:
    return Form(form.settings, lambda name, weight: form.store(name, weight)[0], getattr(form, "options", {}))


def _drawn(settings: dict[str, Any], encoded: Callable[..., Any]) -> Form:
    """Codes and scales that are drawn; the weight says which ones."""

    def store(name: str, weight: torch.Tensor) -> dict[str, torch.Tensor]:
        seed = int(weight.float().abs().sum() * 1e4) % 2**31
        return encoded(tuple(weight.shape), torch.Generator().manual_seed(seed))[0]

    return Form(settings, store)


def _modelopt(algorithm: str) -> Form:
    described = {"quant_method": "modelopt", "quant_algo": algorithm, "ignore": ["lm_head"]}
    return _drawn(described, partial(modelopt.encoded, algorithm))


def _compressed(scheme: str) -> Form:
    return _drawn(compressed.described(scheme), partial(compressed.encoded, scheme))


def _with(settings: dict[str, Any], encoded: Callable[..., Any]) -> Form:
    return _drawn(settings, partial(encoded, settings))


FORMS = {
    **{name: _rounded(form) for name, form in FORMATS.items()},
    "mxfp4": _with(mx.quark("fp4"), mx.encoded),
    "mxfp8": _with({"quant_method": "mxfp8"}, mx.encoded),
    **{f"modelopt {name}": _modelopt(name) for name in ("NVFP4", "FP8", "FP8_PER_CHANNEL_PER_TOKEN", "MXFP8")},
    "bitsandbytes int8": _with(bitsandbytes.EIGHT_BITS, bitsandbytes.encoded),
    "bitsandbytes nf4": _with(bitsandbytes.four_bits("nf4"), bitsandbytes.encoded),
    "bitsandbytes nf4, nested": _with(bitsandbytes.four_bits("nf4", nested=True), bitsandbytes.encoded),
    **{f"compressed-tensors {name}": _compressed(name) for name in ("NVFP4A16", "FP8, blocks", "W4A16, ordered")},
}
"""Of checkpoints, by name."""

ROUNDED = ("int8", "int4", "fp8")
"""Methods that round plain weights while they load."""

QUICK = {
    "awq",
    "gptq 3 bits, act-order, v2",
    "fp8 in blocks",
    "mxfp4",
    "modelopt NVFP4",
    "bitsandbytes nf4, nested",
    "int4",
}
"""One of each kind of codes."""


def some(names: Iterable[str]) -> list[Any]:
    """Return names as parameters of a test, those that are not quick for the exhaustive run."""
    return [pytest.param(name, marks=() if name in QUICK else pytest.mark.exhaustive) for name in names]


def plain(folder: Path, seed: int = 0) -> Path:
    """Write the model with plain weights."""
    return tiny_llama(folder, seed=seed, **SIZES)


def quantized(name: str, folder: Path, seed: int = 0) -> Path:
    """Write the model in one of `FORMS`."""
    path, form, stored = plain(folder, seed), FORMS[name], {}
    file = path / "model.safetensors"
    for key, value in load_file(file).items():
        module = key.removesuffix(".weight")
        tensors = form.store(module, value.float()) if linear(key) else {"weight": value}
        stored |= {f"{module}.{suffix}": one.contiguous() for suffix, one in tensors.items()}
    save_file(stored, file, metadata={"format": "pt"})
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**config, "quantization_config": form.settings}))
    return path


def without_weights(path: Path, folder: Path) -> Path:
    """Copy a model without its weights."""
    shutil.copytree(path, folder)
    (folder / "model.safetensors").unlink()
    return folder
