"""What the files of a shape hold, and what an engine reads and multiplies for a token."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

from benchmarks.compare.cases import Case
from benchmarks.compare.shapes.base import CACHED, Shape


def tensor_bytes(model: Path) -> dict[str, int]:
    """Return name -> bytes of every tensor of a GGUF file or of a folder of safetensors files."""
    if model.is_dir():
        return {name: size for file in sorted(model.glob("*.safetensors")) for name, size in _safetensors(file).items()}
    from core_plugin_gguf.header import Header  # the gguf package takes minutes for a large vocabulary

    return {tensor.name: tensor.num_bytes for tensor in Header(model).tensors}


def _safetensors(file: Path) -> dict[str, int]:
    with file.open("rb") as stream:
        (length,) = struct.unpack("<Q", stream.read(8))
        header: dict[str, Any] = json.loads(stream.read(length))
    places = {name: entry["data_offsets"] for name, entry in header.items() if name != "__metadata__"}
    return {name: end - start for name, (start, end) in places.items()}


def work(shape: Shape, model: Path, cases: tuple[Case, ...]) -> dict[str, Any]:
    """Return what the weights take, and what each case with one stream asks of the machine for a token.

    `weights_mib`: all of them. `kv_mib`: what the cache holds at most. `tokens`: case -> `bytes`, of the weights and
    the cache that a step of one token reads, or `operations` of the products of a prompt, two for a multiply-add,
    divided among its tokens.
    """
    sizes = tensor_bytes(model)
    step = sum(shape.share(name) * size for name, size in sizes.items())
    tokens: dict[str, dict[str, float]] = {}
    for case in cases:
        if case.fills:
            tokens[case.name] = {"operations": 2 * shape.prompt_products(case.input_len) / case.input_len}
        elif case.batch == 1:
            middle = case.input_len + case.output_len // 2
            tokens[case.name] = {"bytes": step + shape.kv_bytes(middle)}
    return {"weights_mib": sum(sizes.values()) / 2**20, "kv_mib": kv_mib(shape, cases), "tokens": tokens}


def room_mib(shape: Shape, cases: tuple[Case, ...]) -> float:
    """Return the MiB of a KV cache that has room for each case, as if no layer had a window."""
    token = sum(CACHED * span.values for span in shape.spans)
    return token * max(case.room for case in cases) / 2**20


def kv_mib(shape: Shape, cases: tuple[Case, ...]) -> float:
    """Return the most that the KV cache holds in a case, in MiB."""
    return max(shape.kv_bytes(case.input_len + case.output_len, case.batch) for case in cases) / 2**20
