"""Floats whose runs of inputs have scales of small types, as AutoRound and torchao store them; and what they mean."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn import functional

E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def in_runs(weight, kind, bits):
    """Codes, the scales of runs and of all, and what they mean: `mx_fp` or `nv_fp`."""
    size = 32 if kind == "mx_fp" else 16
    runs, whole = weight.unflatten(1, (-1, size)), torch.ones(())
    largest = runs.abs().amax(-1)
    if kind == "mx_fp":
        exponents = torch.frexp(largest).exponent - 1 - (2 if bits == 4 else 8)
        stored = (exponents + 127).to(torch.uint8)
        scales = torch.ldexp(torch.ones(exponents.shape), exponents)
    else:
        whole = weight.abs().amax() / (448 * 6)
        stored = (largest / 6 / whole).to(torch.float8_e4m3fn)
        scales = stored.float()
    scaled = runs / (scales * whole).unsqueeze(-1)
    if bits == 8:
        codes = scaled.clamp(-448, 448).to(torch.float8_e4m3fn)
        values, packed = codes.float(), codes.flatten(1)
    else:
        codes = (scaled.unsqueeze(-1) - E2M1).abs().argmin(-1)
        values, packed = E2M1[codes], (codes[..., ::2] | codes[..., 1::2] << 4).to(torch.uint8).flatten(1)
    return packed, stored, whole, (values * (scales * whole).unsqueeze(-1)).flatten(1)


@dataclass(frozen=True)
class AutoRound:
    """Floats in runs, or 8 bits of `fp` with a scale for each output."""

    kind: str = "mx_fp"
    bits: int = 4

    @property
    def settings(self):
        size = {"mx_fp": 32, "nv_fp": 16, "fp": -1}[self.kind]
        packing = {} if self.kind == "fp" else {"packing_format": "auto_round:llm_compressor"}
        numbers = {"bits": self.bits, "data_type": self.kind, "group_size": size, "sym": True, "act_bits": 16}
        return {"quant_method": "auto-round", **numbers, **packing, "block_name_to_quantize": "model.layers"}

    def store(self, name, weight):
        if self.kind == "fp":
            scale = (weight.abs().amax(1) / 440).bfloat16()
            codes = (weight / scale.unsqueeze(1)).to(torch.float8_e4m3fn)
            return {"weight": codes, "weight_scale": scale}, codes.float() * scale.float().unsqueeze(1)
        codes, scales, whole, meant = in_runs(weight, self.kind, self.bits)
        further = {"weight_global_scale": (1 / whole).view(1)} if self.kind == "nv_fp" else {}
        if further:
            meant = meant / whole / further["weight_global_scale"]
        return {"weight" if self.bits == 8 else "weight_packed": codes, "weight_scale": scales, **further}, meant


def in_tiles(scales):
    """Scales as tensor cores read them: tiles of 128 outputs and 4 runs, output `32 i + j` in row `j`."""
    bare = functional.pad(scales.view(torch.uint8), (0, -scales.shape[1] % 4, 0, -scales.shape[0] % 128))
    tiles = bare.view(-1, 4, 32, bare.shape[1] // 4, 4).permute(0, 3, 2, 1, 4)
    return tiles.reshape(len(bare) // 4, bare.shape[1] * 4).view(scales.dtype)


@dataclass(frozen=True)
class TorchAORuns:
    """NVFP4 of torchao, with scales in tiles. Experts are plain."""

    @property
    def settings(self):
        given = {"_type": "NVFP4WeightOnlyConfig", "_data": {"use_dynamic_per_tensor_scale": True}}
        return {"quant_method": "torchao", "quant_type": {"default": given}}

    def store(self, name, weight):
        if ".experts." in name:
            return {"weight": weight}, weight
        codes, scales, whole, meant = in_runs(weight, "nv_fp", 4)
        return {"_weight_qdata": codes, "_weight_scale": in_tiles(scales), "_weight_per_tensor_scale": whole}, meant
