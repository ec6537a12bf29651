"""Small GGUF files for the conformance kit: one of plain values, one quantized, one with a layer of some size."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Kind
from torch import Tensor

from core.api import LayerSite
from core_testing.conformance import CheckpointSample

_HIDDEN, _HEADS, _WIDE, _VOCABULARY = 64, 4, 96, 300
_LARGE = 1024

_NAMES = {
    "model.embed_tokens.weight": ("token_embd.weight", (_VOCABULARY, _HIDDEN)),
    "model.layers.0.input_layernorm.weight": ("blk.0.attn_norm.weight", (_HIDDEN,)),
    "model.layers.0.self_attn.q_proj.weight": ("blk.0.attn_q.weight", (_HIDDEN, _HIDDEN)),
    "model.layers.0.self_attn.k_proj.weight": ("blk.0.attn_k.weight", (_HIDDEN // 2, _HIDDEN)),
    "model.layers.0.self_attn.v_proj.weight": ("blk.0.attn_v.weight", (_HIDDEN // 2, _HIDDEN)),
    "model.layers.0.mlp.up_proj.weight": ("blk.0.ffn_up.weight", (_WIDE, _HIDDEN)),
    "model.layers.0.mlp.gate_proj.weight": ("blk.0.ffn_gate.weight", (_WIDE, _HIDDEN)),
    "model.norm.weight": ("output_norm.weight", (_HIDDEN,)),
    "lm_head.weight": ("output.weight", (_VOCABULARY, _HIDDEN)),
}
"""Hugging Face's name -> GGUF's name and the shape. Rows are in plain order: the architecture is qwen2."""

_LAYERS = (
    LayerSite("embedding", "model.embed_tokens", _HIDDEN, (("", _VOCABULARY),)),
    LayerSite("linear", "model.layers.0.self_attn", _HIDDEN, (("q_proj", 64), ("k_proj", 32), ("v_proj", 32))),
    LayerSite("linear", "model.layers.0.mlp", _HIDDEN, (("gate_proj", _WIDE), ("up_proj", _WIDE))),
    LayerSite("linear", "model.layers.0.mlp.up_proj", _HIDDEN, (("", _WIDE),)),
    LayerSite("lm_head", "lm_head", _HIDDEN, (("", _VOCABULARY),)),
)
_LARGE_LAYER = LayerSite("linear", "model.layers.0.mlp.down_proj", _LARGE, (("", _LARGE),))


def samples() -> Iterator[CheckpointSample]:
    """Yield checkpoints of plain values, of block formats, and one with a layer whose speed says something."""
    yield CheckpointSample("F32", lambda folder: _write(folder, Kind.F32), values=lambda: _values(Kind.F32))
    for kind in (Kind.Q8_0, Kind.Q4_0, Kind.Q5_1):
        yield CheckpointSample(kind.name, _Writer(kind), values=_Values(kind), layers=_LAYERS)
    large = _Writer(Kind.Q4_0, _LARGE)
    yield CheckpointSample("large Q4_0", large, values=_Values(Kind.Q4_0, _LARGE), layers=[_LARGE_LAYER])


class _Writer:
    def __init__(self, kind: Kind, large: int = 0) -> None:
        self._kind, self._large = kind, large

    def __call__(self, folder: Path) -> Path:
        return _write(folder, self._kind, self._large)


class _Values:
    def __init__(self, kind: Kind, large: int = 0) -> None:
        self._kind, self._large = kind, large

    def __call__(self) -> dict[str, Tensor]:
        return _values(self._kind, self._large)


def _arrays(large: int) -> dict[str, tuple[str, np.ndarray]]:
    rng = np.random.default_rng(3)
    names = dict(_NAMES)
    if large:
        names["model.layers.0.mlp.down_proj.weight"] = ("blk.0.ffn_down.weight", (large, large))
    return {name: (stored, rng.standard_normal(shape, dtype=np.float32)) for name, (stored, shape) in names.items()}


def _values(kind: Kind, large: int = 0) -> dict[str, Tensor]:
    """Return what the stored bytes stand for, by the gguf library's own arithmetic."""
    found = {}
    for name, (_, values) in _arrays(large).items():
        if kind != Kind.F32 and values.ndim > 1:
            values = gguf.quants.dequantize(gguf.quants.quantize(values, kind), kind)
        found[name] = torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))
    return found


def _write(folder: Path, kind: Kind, large: int = 0) -> Path:
    path = folder / "tiny.gguf"
    writer = gguf.GGUFWriter(path, "qwen2")
    writer.add_context_length(128)
    writer.add_embedding_length(_HIDDEN)
    writer.add_block_count(1)
    writer.add_feed_forward_length(_WIDE)
    writer.add_head_count(_HEADS)
    writer.add_head_count_kv(_HEADS // 2)
    writer.add_layer_norm_rms_eps(1e-5)
    for stored, values in _arrays(large).values():
        if kind == Kind.F32 or values.ndim == 1:
            writer.add_tensor(stored, values)
        else:
            writer.add_tensor(stored, gguf.quants.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
