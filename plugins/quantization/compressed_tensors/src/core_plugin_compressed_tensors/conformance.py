"""Tiny compressed-tensors checkpoints for the conformance kit, written from the format's definition."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from core.api import LayerSite
from core_testing.conformance import CheckpointSample, quantized_sample

_SITES = (
    LayerSite("embedding", "model.embed_tokens", 64, (("", 40),)),
    LayerSite("linear", "model.layers.0.self_attn", 64, (("q_proj", 64), ("k_proj", 32), ("v_proj", 32))),
    LayerSite("linear", "model.layers.0.mlp.up_proj", 64, (("", 48),), bias=True),
    LayerSite("lm_head", "lm_head", 64, (("", 40),)),
)
_LARGE = (LayerSite("linear", "model.layers.0.mlp.down_proj", 1024, (("", 1024),)),)

Numbers = dict[str, Any]

E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def _int(bits: int, strategy: str, **more: Any) -> Numbers:
    return {"num_bits": bits, "type": "int", "symmetric": True, "strategy": strategy, "dynamic": False, **more}


def _float(bits: int, strategy: str, **more: Any) -> Numbers:
    return _int(bits, strategy, **{"type": "float", **more})


_INT8, _FP8 = _int(8, "token", dynamic=True), _float(8, "token", dynamic=True)
_RUNS16 = _float(4, "tensor_group", group_size=16, dynamic="local")

SCHEMES: Mapping[str, tuple[str, Numbers, Numbers | None, float]] = {
    "W8A8": ("int-quantized", _int(8, "channel"), _INT8, 0.02),
    "W8A8, one scale": ("int-quantized", _int(8, "tensor"), _INT8, 0.02),
    "W8A16": ("int-quantized", _int(8, "channel"), None, 0.0),
    "W8A16, groups, zero points": ("int-quantized", _int(8, "group", group_size=16, symmetric=False), None, 0.0),
    "W4A8, in bytes": ("int-quantized", _int(4, "group", group_size=32), _INT8, 0.02),
    "W4A8, channels, in bytes": ("int-quantized", _int(4, "channel"), _INT8, 0.02),
    "W4A16, zero points, in bytes": ("int-quantized", _int(4, "group", group_size=16, symmetric=False), None, 0.0),
    "W4A16": ("pack-quantized", _int(4, "group", group_size=32), None, 0.0),
    "W4A16, channels": ("pack-quantized", _int(4, "channel"), None, 0.0),
    "W4A16, zero points": ("pack-quantized", _int(4, "group", group_size=16, symmetric=False), None, 0.0),
    "W4A16, ordered": ("pack-quantized", _int(4, "group", group_size=16, actorder="group"), None, 0.0),
    "W8A16, packed": ("pack-quantized", _int(8, "group", group_size=32), None, 0.0),
    "W4A8": ("pack-quantized", _int(4, "group", group_size=32), _INT8, 0.02),
    "FP8, channels": ("float-quantized", _float(8, "channel"), _FP8, 0.05),
    "FP8, static": ("float-quantized", _float(8, "tensor"), _float(8, "tensor"), 0.05),
    "FP8, blocks": (
        "float-quantized",
        _float(8, "block", block_structure=[16, 32]),
        _float(8, "group", group_size=128, dynamic=True),
        0.05,
    ),
    "NVFP4": ("nvfp4-pack-quantized", _float(4, "tensor_group", group_size=16), _RUNS16, 0.2),
    "NVFP4A16": ("nvfp4-pack-quantized", _float(4, "tensor_group", group_size=16), None, 0.0),
    "MXFP4A16": ("mxfp4-pack-quantized", _float(4, "group", group_size=32), None, 0.0),
    "MXFP8": (
        "mxfp8-quantized",
        _float(8, "group", group_size=32),
        _float(8, "group", group_size=32, dynamic=True),
        0.05,
    ),
}
"""Layout, weights and activations by name, and the relative error that rounded activations cause."""

AUTO_ROUND = ("NVFP4", "MXFP4A16", "MXFP8")
"""Schemes that AutoRound stores alike."""


def samples() -> Iterator[CheckpointSample]:
    """Yield every scheme, and layers whose memory says something."""
    for name in SCHEMES:
        yield _sample(name, name, _SITES)
    for name in AUTO_ROUND:
        encode, tolerance = partial(encoded, name), SCHEMES[name][3]
        yield quantized_sample(f"AutoRound, {name}", _SITES, auto_round(name), encode, tolerance=tolerance)
    yield _sample("large", "W8A8", _LARGE)
    yield _sample("large, packed", "W4A16", _LARGE)
    yield _sample("large, four bits in bytes", "W4A8, in bytes", _LARGE)


def described(scheme: str) -> dict[str, Any]:
    """Return the `quantization_config` of a scheme."""
    layout, weights, activations, _ = SCHEMES[scheme]
    group = {"targets": ["Linear"], "weights": weights, "input_activations": activations}
    return {
        "quant_method": "compressed-tensors",
        "format": layout,
        "config_groups": {"group_0": group},
        "ignore": ["lm_head"],
    }


def auto_round(scheme: str) -> dict[str, Any]:
    """Return the `quantization_config` that AutoRound writes of a scheme with floats in runs."""
    layout, weights, activations, _ = SCHEMES[scheme]
    kind = "nv_fp" if layout.startswith("nvfp4") else "mx_fp"
    said = {"bits": weights["num_bits"], "data_type": kind, "group_size": weights["group_size"], "sym": True}
    if activations is not None:
        static = "4_with_static_gs" if kind == "nv_fp" else ""
        said |= {"act_bits": activations["num_bits"], "act_data_type": f"{kind}{static}", "act_sym": True}
        said |= {"act_group_size": activations["group_size"], "act_dynamic": True}
    packing = {"packing_format": "auto_round:llm_compressor", "block_name_to_quantize": "model.layers"}
    return {"quant_method": "auto-round", **said, **packing}


def _sample(name: str, scheme: str, sites: Sequence[LayerSite]) -> CheckpointSample:
    tolerance = SCHEMES[scheme][3]
    return quantized_sample(name, sites, described(scheme), partial(encoded, scheme), tolerance=tolerance)


def encoded(scheme: str, size: tuple[int, int], rng: torch.Generator) -> tuple[dict[str, Tensor], Tensor]:
    """Return a random weight as a scheme stores it, and the values that it means."""
    layout, weights, activations, _ = SCHEMES[scheme]
    if layout in ("int-quantized", "pack-quantized"):
        return _integers(layout, weights, size, rng)
    if layout == "float-quantized":
        fixed = activations is not None and not activations["dynamic"]
        return _floats(weights, size, rng, {"input_scale": torch.tensor([0.01])} if fixed else {})
    return _runs(layout, weights, size, rng)


def _integers(
    layout: str, weights: Numbers, size: tuple[int, int], rng: torch.Generator
) -> tuple[dict[str, Tensor], Tensor]:
    (rows, inputs), bits, strategy = size, weights["num_bits"], weights["strategy"]
    half, groups = 1 << bits - 1, inputs // weights["group_size"] if strategy == "group" else 1
    codes = torch.randint(-half, half, size, generator=rng)
    scales = (torch.rand((1,) if strategy == "tensor" else (rows, groups), generator=rng) + 0.1) / half / 4
    group = torch.arange(inputs) // (inputs // groups)
    tensors = {"weight_scale": scales}
    if weights.get("actorder") == "group":
        group = group[torch.randperm(inputs, generator=rng)]
        tensors["weight_g_idx"] = group.int()
    zeros = torch.zeros(rows, groups, dtype=torch.int64)
    if not weights["symmetric"]:
        zeros = torch.randint(-half, half, (rows, groups), generator=rng)
    packed = layout == "pack-quantized"
    if packed:
        tensors |= {"weight_packed": _words(codes + half, bits), "weight_shape": torch.tensor([rows, inputs])}
    else:
        tensors["weight"] = codes.to(torch.int8)
    if not weights["symmetric"]:
        tensors["weight_zero_point"] = _words((zeros + half).t(), bits).t() if packed else zeros.to(torch.int8)
    spread = scales.expand(rows, groups)[:, group]
    return tensors, (codes - zeros[:, group]).float() * spread


def _words(codes: Tensor, bits: int) -> Tensor:
    """Return unsigned codes `(rows, columns)` in words along the columns, which are filled up with zeros."""
    each = 32 // bits
    padded = torch.nn.functional.pad(codes, (0, -codes.shape[1] % each)).unflatten(1, (-1, each))
    return (padded << torch.arange(0, 32, bits)).sum(-1).to(torch.int32)


def _floats(
    weights: Numbers, size: tuple[int, int], rng: torch.Generator, more: dict[str, Tensor]
) -> tuple[dict[str, Tensor], Tensor]:
    rows, inputs = size
    codes = (torch.randn(size, generator=rng) * 100).clamp(-448, 448).to(torch.float8_e4m3fn)
    block = weights.get("block_structure", (1, inputs))
    shape = (1,) if weights["strategy"] == "tensor" else (-(-rows // block[0]), -(-inputs // block[1]))
    scales = (torch.rand(shape, generator=rng) + 0.1) / 64
    spread = scales if len(shape) == 1 else scales.repeat_interleave(block[0], 0).repeat_interleave(block[1], 1)
    spread = spread if len(shape) == 1 else spread[:rows, :inputs]
    return {"weight": codes, "weight_scale": scales, **more}, codes.float() * spread


def _runs(
    layout: str, weights: Numbers, size: tuple[int, int], rng: torch.Generator
) -> tuple[dict[str, Tensor], Tensor]:
    """Return runs of inputs with a small scale each."""
    rows, runs, whole = size[0], size[1] // weights["group_size"], torch.ones(())
    tensors: dict[str, Tensor] = {}
    if weights["num_bits"] == 4:
        codes = torch.randint(0, 16, size, generator=rng)
        tensors["weight_packed"], values = (codes[:, ::2] | codes[:, 1::2] << 4).to(torch.uint8), E2M1[codes]
    else:
        tensors["weight"] = (torch.randn(size, generator=rng) * 100).clamp(-448, 448).to(torch.float8_e4m3fn)
        values = tensors["weight"].float()
    if layout == "nvfp4-pack-quantized":
        scales = (torch.rand(rows, runs, generator=rng) * 100 + 1).to(torch.float8_e4m3fn)
        whole, found = torch.tensor(1 / 4096), scales.float()
        tensors |= {"weight_global_scale": torch.tensor([4096.0]), "input_global_scale": torch.tensor([512.0])}
    else:
        scales = torch.randint(115, 122, (rows, runs), generator=rng).to(torch.uint8)
        found = torch.pow(2.0, scales.float() - 127)
    return {**tensors, "weight_scale": scales}, values * found.repeat_interleave(weights["group_size"], 1) * whole
