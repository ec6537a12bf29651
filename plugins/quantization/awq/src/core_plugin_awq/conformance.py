"""Tiny AWQ checkpoints for the conformance kit, written from the format's definition."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from core.api import LayerSite
from core_plugin_awq.config import ORDER
from core_testing.conformance import CheckpointSample

_SITES = (
    LayerSite("embedding", "model.embed_tokens", 64, (("", 40),)),
    LayerSite("linear", "model.layers.0.self_attn", 64, (("q_proj", 64), ("k_proj", 32), ("v_proj", 32))),
    LayerSite("linear", "model.layers.0.mlp.up_proj", 64, (("", 48),), bias=True),
    LayerSite("lm_head", "lm_head", 64, (("", 40),)),
)
_LARGE = (LayerSite("linear", "model.layers.0.mlp.down_proj", 1024, (("", 1024),)),)


@dataclass(frozen=True)
class _Kind:
    """A way of storing weights: with a `packing`, as AutoRound describes it."""

    size: int
    layout: str = "gemm"
    packing: str = ""

    @property
    def described(self) -> dict[str, object]:
        """The `quantization_config`."""
        shared: dict[str, object] = {"bits": 4, "group_size": self.size}
        if self.packing:
            return {"quant_method": "auto-round", **shared, "packing_format": self.packing, "sym": False}
        return {"quant_method": "awq", **shared, "zero_point": True, "version": self.layout}


def samples() -> Iterator[CheckpointSample]:
    """Yield small layers in every layout, in groups and of all inputs, and a layer whose speed says something."""
    yield _sample("groups of 32", _SITES, _Kind(32))
    yield _sample("one group", _SITES, _Kind(-1))
    yield _sample("AutoRound", _SITES, _Kind(32, packing="auto_round:auto_awq"))
    yield _sample("gemv", _SITES, _Kind(32, "gemv"))
    yield _sample("gemv, groups of 64", _SITES, _Kind(64, "gemv"))
    yield _sample("gemv_fast", _SITES, _Kind(32, "gemv_fast"))
    yield _sample("gemv_fast, groups of 64", _SITES, _Kind(64, "gemv_fast"))
    yield _sample("large", _LARGE, _Kind(128))
    yield _sample("large gemv", _LARGE, _Kind(128, "gemv"))
    yield _sample("large gemv_fast", _LARGE, _Kind(128, "gemv_fast"))


def _sample(name: str, sites: Sequence[LayerSite], kind: _Kind) -> CheckpointSample:
    return CheckpointSample(name, partial(_write, sites, kind), values=partial(_values, sites, kind), layers=sites)


def _write(sites: Sequence[LayerSite], kind: _Kind, folder: Path) -> Path:
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "vocab_size": 40}
    (folder / "config.json").write_text(json.dumps({**config, "quantization_config": kind.described}))
    save_file(_make(sites, kind)[0], folder / "model.safetensors")
    return folder


def _values(sites: Sequence[LayerSite], kind: _Kind) -> dict[str, Tensor]:
    return _make(sites, kind)[1]


def _make(sites: Sequence[LayerSite], kind: _Kind) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
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
            groups = 1 if kind.size == -1 else site.in_features // kind.size
            codes = torch.randint(0, 16, (site.in_features, rows), generator=rng)
            zeros = torch.randint(4, 12, (groups, rows), generator=rng)
            scales = (torch.rand(groups, rows, generator=rng) + 0.5).half()
            tensors = _LAYOUTS[kind.layout](codes, zeros, scales, kind.size)
            stored |= {f"{module}.{name}": tensor for name, tensor in tensors.items()}
            values = -zeros * scales.float()  # of code 0
            if kind.layout == "gemv_fast":  # as they are stored
                values = tensors["scaled_zeros"][:groups].float()
            each = site.in_features // groups
            weight = codes * scales.float().repeat_interleave(each, 0) + values.repeat_interleave(each, 0)
            meant[f"{module}.weight"] = weight.t().contiguous()
    return stored, meant


def _gemm(codes: Tensor, zeros: Tensor, scales: Tensor, size: int) -> dict[str, Tensor]:
    """Return what `gemm` stores of `codes (in, rows)` and `zeros`, `scales (groups, rows)`."""
    return {"qweight": _pack(codes, ORDER), "qzeros": _pack(zeros, ORDER), "scales": scales}


def _gemv(codes: Tensor, zeros: Tensor, scales: Tensor, size: int) -> dict[str, Tensor]:
    """Return what `gemv` stores: everything by rows, groups filled up to whole words, and to 2 or 4 of these."""
    natural = range(8)
    points = _pack(_filled(zeros, size).t(), natural)
    return {"qweight": _pack(codes.t(), natural), "qzeros": points, "scales": _filled(scales, size).t().contiguous()}


def _fast(codes: Tensor, zeros: Tensor, scales: Tensor, size: int) -> dict[str, Tensor]:
    """Return what `gemv_fast` stores: groups filled up as in `gemv`, codes of 4 outputs and 64 inputs in 64 words."""
    inputs, rows = codes.shape
    k, n = torch.arange(inputs), torch.arange(rows).unsqueeze(1)
    run, pair, second = k % 32 // 8, k % 8 // 2, k % 2
    place = n % 4 * 64 + k % 64 // 32 * 32 + 8 * pair + 4 * second + run
    word = n // 4 * inputs + k // 64 * 64 + place // 4
    words = torch.zeros(rows // 4 * inputs, dtype=torch.int64)
    words.index_add_(0, word.flatten(), (codes.t() << 4 * (place % 4)).flatten())
    scaled = (-zeros * scales.float()).half()
    shared = {"scales": _filled(scales, size), "scaled_zeros": _filled(scaled, size)}
    return {"qweight": words.view(rows // 4, inputs).to(torch.int16), **shared}


def _filled(shared: Tensor, size: int) -> Tensor:
    """Return `shared (groups, rows)` with zeros up to whole words of zero points."""
    some = 8 * (128 // size)
    return torch.cat((shared, shared.new_zeros(-len(shared) % some, shared.shape[1])))


_LAYOUTS = {"gemm": _gemm, "gemv": _gemv, "gemv_fast": _fast}


def _pack(values: Tensor, order: Sequence[int]) -> Tensor:
    """Return `values (rows, columns)` of four bits as words of eight columns."""
    words = torch.zeros(values.shape[0], values.shape[1] // 8, dtype=torch.int64)
    for nibble, column in enumerate(order):
        words |= values[:, column::8] << (4 * nibble)
    return words.to(torch.int32)
