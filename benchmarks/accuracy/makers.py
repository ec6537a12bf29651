"""Checkpoints of a model in the forms that quantization methods read, each made from the same numbers.

Rounding is to the nearest number, with scales by the extremes: what a calibrated checkpoint has beyond that is its own.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.compare import four_bit, llama_cpp, models

if TYPE_CHECKING:
    from torch import Tensor

Store = Callable[[str, "Tensor"], "dict[str, Tensor]"]
"""A module's path and its weight -> what the checkpoint has of it."""

_BLOCK = 64
"""Weights of a bitsandbytes block."""

_QUARK = {
    "quant_method": "quark",
    "global_quant_config": {
        "weight": {
            "dtype": "fp4",
            "is_dynamic": False,
            "qscheme": "per_group",
            "group_size": 32,
            "scale_format": "e8m0",
            "ch_axis": -1,
        },
        "input_tensors": None,
    },
    "exclude": ["lm_head"],
}


def opened(file: Path, target: Path) -> None:
    """Write a GGUF file's weights in float32, in Hugging Face's layout."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    model = AutoModelForCausalLM.from_pretrained(
        file.parent, gguf_file=file.name, dtype=torch.float32, quantization_config=GgufConfig(dequantize=True)
    )
    # It says how the file was read, and would make readers of the folder look for that file.
    model.config.__dict__.pop("quantization_config", None)
    model.save_pretrained(target)
    AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name).save_pretrained(target)


def rounded(source: Path, target: Path, store: Store, settings: Mapping[str, Any]) -> None:
    """Write a checkpoint whose linear layers are what `store` makes of their weights."""
    from safetensors.torch import load_file, save_file

    shutil.copytree(source, target)
    file, tensors = next(target.glob("*.safetensors")), {}
    for name, value in load_file(file).items():
        module = name.removesuffix(".weight")
        tensors |= store(module, value) if name.endswith("_proj.weight") else {name: value}
    save_file({name: one.contiguous() for name, one in tensors.items()}, file, metadata={"format": "pt"})
    config = target / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "quantization_config": settings}, indent=2))


def nf4(module: str, weight: Tensor) -> dict[str, Tensor]:
    """Return what a bitsandbytes checkpoint has of a weight in nf4."""
    import torch
    from core_plugin_bitsandbytes.state import TABLES

    table = TABLES["nf4"]
    blocks = weight.float().reshape(-1, _BLOCK)
    largest = blocks.abs().amax(1)
    middles = (table[1:] + table[:-1]) / 2
    codes = torch.bucketize(blocks / largest.clamp(min=1e-30).unsqueeze(1), middles).flatten().to(torch.uint8)
    state = {"quant_type": "nf4", "blocksize": _BLOCK, "dtype": "bfloat16", "shape": list(weight.shape)}
    tensors = {
        "weight": (codes[::2] << 4 | codes[1::2]).view(-1, 1),
        "weight.absmax": largest,
        "weight.quant_map": table.clone(),
        "weight.quant_state.bitsandbytes__nf4": torch.tensor(list(json.dumps(state).encode()), dtype=torch.uint8),
    }
    return {f"{module}.{name}": one for name, one in tensors.items()}


def mxfp4(module: str, weight: Tensor) -> dict[str, Tensor]:
    """Return what a Quark checkpoint has of a weight in MXFP4."""
    from core_plugin_cpu.products.floats import rounded_float4

    codes, exponents, _ = rounded_float4(weight.float(), power=True)
    return {f"{module}.weight": _pairs(codes), f"{module}.weight_scale": exponents}


def mxfp4_searched(module: str, weight: Tensor) -> dict[str, Tensor]:
    """Return the same with the exponent, of the specification's and the next, that has the least squared error."""
    import torch
    from core_plugin_cpu.products.floats import opened_scales, rounded_float4

    from core.ops.products import E2M1
    from core.ops.rounding import to_e2m1

    groups = weight.float().unflatten(1, (-1, 32))
    low = rounded_float4(weight.float(), power=True)[1]
    errors = []
    for exponents in (low, low + 1):
        scales = opened_scales(exponents, "e8m0").unsqueeze(-1)
        errors.append((to_e2m1(groups / scales) * scales - groups).square().sum(-1))
    exponents = low + (errors[1] < errors[0])
    values = to_e2m1(groups / opened_scales(exponents, "e8m0").unsqueeze(-1)).flatten(1)
    codes = torch.searchsorted(torch.tensor(E2M1), values.abs()) + 8 * (values < 0)
    return {f"{module}.weight": _pairs(codes.to(torch.uint8)), f"{module}.weight_scale": exponents}


def nvfp4(module: str, weight: Tensor) -> dict[str, Tensor]:
    """Return what a ModelOpt checkpoint has of a weight in NVFP4."""
    import torch
    from core_plugin_cpu.products.floats import rounded_float4

    codes, scales, whole = rounded_float4(weight.float(), power=False)
    assert whole is not None  # NVFP4 has a scale for the whole weight
    tensors = {"weight": _pairs(codes), "weight_scale": scales.view(torch.float8_e4m3fn), "weight_scale_2": whole}
    return {f"{module}.{name}": one for name, one in tensors.items()}


def float8(module: str, weight: Tensor) -> dict[str, Tensor]:
    """Return what a checkpoint has of a weight in float8 with a scale for each block of 128 by 128."""
    import torch
    from core_plugin_cpu.products.floats import rounded as blocks

    codes, scales = blocks(weight.float(), 128, 128, torch.float8_e4m3fn)
    return {f"{module}.weight": codes.view(torch.float8_e4m3fn), f"{module}.weight_scale_inv": scales}


STORED: Mapping[str, tuple[Store, Mapping[str, Any]]] = {
    "w8a8": (models._int8, models._W8A8),
    "awq": (four_bit.awq, four_bit.AWQ),
    "gptq": (four_bit.gptq, four_bit.GPTQ),
    "nf4": (
        nf4,
        {
            "quant_method": "bitsandbytes",
            "load_in_4bit": True,
            "bnb_4bit_quant_type": "nf4",
            "llm_int8_skip_modules": ["lm_head"],
        },
    ),
    "mxfp4": (mxfp4, _QUARK),
    "mxfp4-searched": (mxfp4_searched, _QUARK),
    "nvfp4": (nvfp4, {"quant_method": "modelopt", "quant_algo": "W4A16_NVFP4", "ignore": ["lm_head"]}),
    "fp8-blocks": (
        float8,
        {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128], "fmt": "e4m3"},
    ),
}
"""Form -> what it has of a weight, and its `quantization_config`."""


def gguf_file(source: Path, target: Path, kind: str, peers: Path) -> None:
    """Write a GGUF file with the weights of another in a type: by the gguf package, or by llama.cpp's program.

    Raises:
        SetupError: It takes llama.cpp's `llama-quantize`, which cannot be built here.
    """
    if kind in ("F32", "Q8_0", "Q4_0", "MXFP4"):
        models.rewrite(source, target, kind)
        return
    subprocess.run([llama_cpp.quantizer(peers), source, target, kind], check=True, capture_output=True)


def _pairs(codes: Tensor) -> Tensor:
    """Return two codes to a byte, the first in its low bits."""
    return codes[:, ::2] | codes[:, 1::2] << 4
