"""Tiny torchao checkpoints for the conformance kit, written from the definition of its tensor classes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from core.api import LayerSite
from core_testing.conformance import CheckpointSample, quantized_sample

_SITES = (
    LayerSite("embedding", "model.embed_tokens", 128, (("", 40),)),
    LayerSite("linear", "model.layers.0.self_attn", 128, (("q_proj", 64), ("k_proj", 32), ("v_proj", 32))),
    LayerSite("linear", "model.layers.0.mlp.up_proj", 128, (("", 48),), bias=True),
    LayerSite("lm_head", "lm_head", 128, (("", 40),)),
)
_LARGE = (LayerSite("linear", "model.layers.0.mlp.down_proj", 1024, (("", 1024),)),)
E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
ROWS: dict[str, Any] = {"_type": "PerRow", "_version": 1, "_data": {"dim": -1}}
WHOLE: dict[str, Any] = {"_type": "PerTensor", "_version": 1, "_data": {}}
GROUPS: dict[str, Any] = {"_type": "PerGroup", "_version": 1, "_data": {"group_size": 32}}


def config(name: str, **data: Any) -> dict[str, Any]:
    """Return a configuration as `config_to_dict` of torchao writes it."""
    return {"_type": name, "_version": 2, "_data": data}


def member(kind: str, name: str) -> dict[str, Any]:
    """Return a member of an enumeration, or a dtype, as it is written."""
    return {"_type": kind, "_data": name}


def described(given: Mapping[str, Any], **settings: Any) -> dict[str, Any]:
    """Return a `quantization_config` as transformers writes it."""
    return {"quant_method": "torchao", "quant_type": {"default": given}, "modules_to_not_convert": None, **settings}


INT4 = config("Int4WeightOnlyConfig", group_size=32, int4_packing_format=member("Int4PackingFormat", "PLAIN"))
TILES = config(
    "Int4WeightOnlyConfig", group_size=64, int4_packing_format=member("Int4PackingFormat", "TILE_PACKED_TO_4D")
)
INT8 = config("Int8WeightOnlyConfig", granularity=ROWS)
INT8_DYNAMIC = config("Int8DynamicActivationInt8WeightConfig", granularity=ROWS)
FLOAT8 = config("Float8WeightOnlyConfig", weight_dtype=member("torch.dtype", "float8_e4m3fn"))
FLOAT8_DYNAMIC = config("Float8DynamicActivationFloat8WeightConfig", granularity=[ROWS, ROWS])
FLOAT8_WHOLE = config("Float8DynamicActivationFloat8WeightConfig", granularity=[WHOLE, WHOLE])
INTX = config(
    "IntxWeightOnlyConfig",
    weight_dtype=member("torch.dtype", "int4"),
    granularity=GROUPS,
    mapping_type=member("MappingType", "ASYMMETRIC"),
)
INTX_SYMMETRIC = config(
    "Int8DynamicActivationIntxWeightConfig",
    weight_dtype=member("torch.dtype", "int3"),
    weight_granularity=GROUPS,
    weight_mapping_type=member("MappingType", "SYMMETRIC"),
)
FP4, FP8 = member("torch.dtype", "float4_e2m1fn_x2"), member("torch.dtype", "float8_e4m3fn")
MX = "MXDynamicActivationMXWeightConfig"
MXFP4 = config(MX, block_size=32, activation_dtype=FP4, weight_dtype=FP4)
MXFP8 = config(MX, block_size=32, activation_dtype=FP8, weight_dtype=FP8)
NVFP4 = config("NVFP4WeightOnlyConfig", use_dynamic_per_tensor_scale=True)
NVFP4_DYNAMIC = config("NVFP4DynamicActivationNVFP4WeightConfig", use_dynamic_per_tensor_scale=True, step=None)
NVFP4_STATIC = config("NVFP4DynamicActivationNVFP4WeightConfig", step=member("QuantizationStep", "CONVERT"))
NVFP4_RUNS = config("NVFP4WeightOnlyConfig", use_dynamic_per_tensor_scale=False)
ACTIVATIONS = 0.002
"""The fixed scale of activations in NVFP4."""

_TOLERANCES = {
    "int8, activations too": 0.02,
    "float8, activations too": 0.05,
    "float8, one scale": 0.05,
    "MXFP4": 0.25,
    "MXFP8": 0.05,
    "NVFP4, activations too": 0.2,
    "NVFP4, fixed activations": 0.2,
}


def samples() -> Iterator[CheckpointSample]:
    """Yield every class of tensors, activations rounded or not, and layers whose memory says something."""
    kinds = {
        "int4": INT4,
        "int4 in tiles": TILES,
        "int8": INT8,
        "int8, activations too": INT8_DYNAMIC,
        "float8": FLOAT8,
        "float8, activations too": FLOAT8_DYNAMIC,
        "float8, one scale": FLOAT8_WHOLE,
        "4 bits in bytes": INTX,
        "3 bits in bytes, symmetric": INTX_SYMMETRIC,
        "MXFP4": MXFP4,
        "MXFP8": MXFP8,
        "NVFP4": NVFP4,
        "NVFP4, activations too": NVFP4_DYNAMIC,
        "NVFP4, fixed activations": NVFP4_STATIC,
        "NVFP4, runs alone": NVFP4_RUNS,
    }
    for name, given in kinds.items():
        yield _sample(name, _SITES, given)
    yield _sample("large", _LARGE, INT4)
    yield _sample("large in tiles", _LARGE, TILES)
    yield _sample("large NVFP4", _LARGE, NVFP4)


def _sample(name: str, sites: Sequence[LayerSite], given: Mapping[str, Any]) -> CheckpointSample:
    tolerance = _TOLERANCES.get(name, 0.0)
    return quantized_sample(name, sites, described(given), partial(encoded, given), tolerance=tolerance)


def encoded(given: Mapping[str, Any], size: tuple[int, int], rng: torch.Generator) -> tuple[dict[str, Tensor], Tensor]:
    """Return a random weight as a checkpoint stores it, and the values that it means."""
    name, data = given["_type"], given["_data"]
    if name == "Int4WeightOnlyConfig":
        tiles = data["int4_packing_format"]["_data"] != "PLAIN"
        return (_tiles if tiles else _int4)(data["group_size"], size, rng)
    if "Intx" in name:
        return _intx(data, size, rng)
    if name == MX or name.startswith("NVFP4"):
        return _runs(given, size, rng)
    scales = torch.rand(1 if data.get("granularity") == [WHOLE, WHOLE] else size[0], 1, generator=rng) / 20 + 0.01
    if "Int8" in name:
        codes = torch.randint(-127, 128, size, generator=rng).to(torch.int8)
    else:
        codes = (torch.randn(size, generator=rng) * 100).clamp(-448, 448).to(torch.float8_e4m3fn)
    stored = {"_weight_qdata": codes, "_weight_scale": scales}
    if name == "Int8WeightOnlyConfig":  # as torchao 0.18 has it
        stored["_weight_zero_point"] = torch.zeros(scales.shape, dtype=torch.int8)
    return stored, codes.float() * scales


def _groups(each: int, size: tuple[int, int], rng: torch.Generator) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return signed codes of four bits, scales and the values of code 0 `(out, groups)`, and what they mean."""
    codes = torch.randint(-8, 8, size, generator=rng)
    scales, values = ((torch.rand(size[0], size[1] // each, generator=rng) + 0.5).bfloat16() for _ in range(2))
    meant = codes * scales.float().repeat_interleave(each, 1) + values.float().repeat_interleave(each, 1)
    return codes, scales, values, meant


def _int4(each: int, size: tuple[int, int], rng: torch.Generator) -> tuple[dict[str, Tensor], Tensor]:
    codes, scales, values, meant = _groups(each, size, rng)
    packed = ((codes[:, ::2] & 15) | (codes[:, 1::2] & 15) << 4).to(torch.uint8).view(torch.int8)
    return {"_weight_qdata": packed, "_weight_scale": scales.t(), "_weight_zero_point": values.t()}, meant


def _tiles(each: int, size: tuple[int, int], rng: torch.Generator) -> tuple[dict[str, Tensor], Tensor]:
    codes, scales, values, meant = _groups(each, size, rng)
    rows, inputs = -(-size[0] // 8) * 8, -(-size[1] // 1024) * 1024
    whole = torch.zeros(rows, inputs, dtype=torch.int64)
    whole[: size[0], : size[1]] = codes + 8
    words = torch.zeros(rows // 8, inputs // 128, 32, 4, dtype=torch.int64)
    for lane in range(32):
        for nibble in range(8):
            # Word `w` of a lane is about 32 inputs; its nibbles are first inputs of four runs, then second ones.
            first = 8 * (nibble % 4) + nibble // 4 + 2 * (lane % 4)
            taken = whole[lane // 4 :: 8, first::32]
            words[:, :, lane] |= taken.unflatten(1, (-1, 4)) << 4 * nibble
    both = torch.zeros(inputs // each, rows, 2, dtype=torch.bfloat16)
    both[: size[1] // each, : size[0], 0] = scales.t()
    both[: size[1] // each, : size[0], 1] = values.t()
    return {"_weight_qdata": words.to(torch.int32), "_weight_scale_and_zero": both}, meant


def _runs(given: Mapping[str, Any], size: tuple[int, int], rng: torch.Generator) -> tuple[dict[str, Tensor], Tensor]:
    """Return runs of inputs with scales of a small type, which lie in tiles."""
    data, whole = given["_data"], torch.ones(())
    further: dict[str, Tensor] = {}
    if given["_type"] == MX:
        exponents = torch.randint(115, 122, (size[0], size[1] // 32), generator=rng).to(torch.uint8)
        scales, found = exponents.view(torch.float8_e8m0fnu), torch.pow(2.0, exponents.float() - 127)
    else:
        scales = (torch.rand(size[0], size[1] // 16, generator=rng) * 100 + 1).to(torch.float8_e4m3fn)
        found = scales.float()
        if data.get("use_dynamic_per_tensor_scale", True):
            whole = torch.tensor(0.0003)
            further["_weight_per_tensor_scale"] = whole
        if data.get("step"):
            further["_weight_act_per_tensor_scale"] = torch.tensor(ACTIVATIONS)
    if data.get("weight_dtype") == FP8:
        codes = (torch.randn(size, generator=rng) * 100).clamp(-448, 448).to(torch.float8_e4m3fn)
        values = codes.float()
    else:
        nibbles = torch.randint(0, 16, size, generator=rng)
        codes, values = (nibbles[:, ::2] | nibbles[:, 1::2] << 4).to(torch.uint8), E2M1[nibbles]
    meant = values * found.repeat_interleave(size[1] // scales.shape[1], 1) * whole
    return {"_weight_qdata": codes, "_weight_scale": tiled(scales), **further}, meant


def tiled(scales: Tensor) -> Tensor:
    """Return scales `(outputs, runs)` as tensor cores read them: tiles of 128 outputs and 4 runs, one after another."""
    rows, runs = scales.shape
    down, across = -(-rows // 128), -(-runs // 4)
    row, run = torch.arange(rows).unsqueeze(1), torch.arange(runs)
    place = (row // 128 * across + run // 4) * 512 + row % 32 * 16 + row % 128 // 32 * 4 + run % 4
    found = torch.zeros(down * across * 512, dtype=torch.uint8)
    found[place] = scales.view(torch.uint8)
    return found.view(down * 32, across * 16).view(scales.dtype)


def _intx(data: Mapping[str, Any], size: tuple[int, int], rng: torch.Generator) -> tuple[dict[str, Tensor], Tensor]:
    half = 1 << int(data["weight_dtype"]["_data"].removeprefix("int")) - 1
    codes = torch.randint(-half, half, size, generator=rng)
    shared = (size[0], size[1] // 32)
    scales = torch.rand(shared, generator=rng) + 0.5
    zeros = torch.randint(-half, half, shared, generator=rng) if "mapping_type" in data else torch.zeros(shared).long()
    tensors = {"qdata": codes.to(torch.int8), "scale": scales, "zero_point": zeros.to(torch.int8)}
    meant = (codes - zeros.repeat_interleave(32, 1)) * scales.repeat_interleave(32, 1)
    return {f"_weight_{name}": tensor for name, tensor in tensors.items()}, meant
