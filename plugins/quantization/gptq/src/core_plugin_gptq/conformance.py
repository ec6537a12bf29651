"""Tiny GPTQ checkpoints for the conformance kit, written from the format's definition."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from core.api import LayerSite
from core_testing.conformance import CheckpointSample

_SITES = (
    LayerSite("embedding", "model.embed_tokens", 64, (("", 40),)),
    LayerSite("linear", "model.layers.0.self_attn", 64, (("q_proj", 64), ("k_proj", 32), ("v_proj", 32))),
    LayerSite("linear", "model.layers.0.mlp.up_proj", 64, (("", 64),), bias=True),
    LayerSite("lm_head", "lm_head", 64, (("", 40),)),
)
_LARGE = (LayerSite("linear", "model.layers.0.mlp.down_proj", 1024, (("", 1024),)),)


@dataclass(frozen=True)
class _Kind:
    """A way of storing weights."""

    size: int
    bits: int = 4
    act_order: bool = False
    symmetric: bool = False
    form: str = "gptq"


_KINDS = {
    "groups of 32": _Kind(32),
    "act-order": _Kind(32, act_order=True),
    "one group, gptq_v2": _Kind(-1, form="gptq_v2"),
    "8 bits": _Kind(32, bits=8),
    "3 bits": _Kind(32, bits=3),
    "2 bits": _Kind(32, bits=2),
    "symmetric": _Kind(32, symmetric=True),
    "symmetric act-order, 3 bits, gptq_v2": _Kind(32, bits=3, act_order=True, form="gptq_v2", symmetric=True),
}


def samples() -> Iterator[CheckpointSample]:
    """Yield small layers stored in every way, and a layer whose speed says something."""
    for name, kind in _KINDS.items():
        yield _sample(name, kind, _SITES)
    yield _sample("large", _Kind(128), _LARGE)


def _sample(name: str, kind: _Kind, sites: Sequence[LayerSite]) -> CheckpointSample:
    return CheckpointSample(
        name, lambda folder: _write(kind, sites, folder), values=lambda: _make(kind, sites)[1], layers=sites
    )


def _write(kind: _Kind, sites: Sequence[LayerSite], folder: Path) -> Path:
    quantization = {
        "quant_method": "gptq",
        "bits": kind.bits,
        "group_size": kind.size,
        "desc_act": kind.act_order,
        "sym": kind.symmetric,
        "checkpoint_format": kind.form,
    }
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "vocab_size": 40}
    (folder / "config.json").write_text(json.dumps({**config, "quantization_config": quantization}))
    save_file(_make(kind, sites)[0], folder / "model.safetensors")
    return folder


def _make(kind: _Kind, sites: Sequence[LayerSite]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return the tensors as stored, and the values that they mean."""
    rng = torch.Generator().manual_seed(5)
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
            tensors, weight = _linear(kind, site.in_features, rows, rng)
            stored |= {f"{module}.{name}": value for name, value in tensors.items()}
            meant[f"{module}.weight"] = weight
    return stored, meant


def _linear(kind: _Kind, inputs: int, rows: int, rng: torch.Generator) -> tuple[dict[str, Tensor], Tensor]:
    size = inputs if kind.size == -1 else kind.size
    groups, most = inputs // size, 2**kind.bits
    codes = torch.randint(0, most, (inputs, rows), generator=rng)
    zeros = torch.randint(1, most, (groups, rows), generator=rng)
    zeros = torch.full_like(zeros, most // 2) if kind.symmetric else zeros
    scales = (torch.rand(groups, rows, generator=rng) + 0.5).half()
    group = torch.arange(inputs) // size
    if kind.act_order:
        group = group[torch.randperm(inputs, generator=rng)]
    weight = (codes - zeros[group]) * scales.float()[group]
    tensors = {
        "qweight": _pack(codes.t(), kind.bits).t().contiguous(),
        "qzeros": _pack(zeros - int(kind.form == "gptq"), kind.bits),
        "scales": scales,
        "g_idx": group.to(torch.int32),
    }
    return tensors, weight.t().contiguous()


def _pack(values: Tensor, bits: int) -> Tensor:
    """Return `values (rows, columns)` as words: bit after bit, the first column's lowest first."""
    each = (values.unsqueeze(-1) >> torch.arange(bits)) & 1
    words: Tensor = each.reshape(values.shape[0], -1, 32) << torch.arange(32)
    return words.sum(-1).to(torch.int32)
