"""Tiny bitsandbytes checkpoints for the conformance kit, written from the format's definition."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from core.api import LayerSite
from core_plugin_bitsandbytes.state import TABLES
from core_testing.conformance import CheckpointSample, quantized_sample


def _sites(inputs: int) -> tuple[LayerSite, ...]:
    return (
        LayerSite("embedding", "model.embed_tokens", inputs, (("", 40),)),
        LayerSite("linear", "model.layers.0.self_attn", inputs, (("q_proj", 64), ("k_proj", 32), ("v_proj", 32))),
        LayerSite("linear", "model.layers.0.mlp.up_proj", inputs, (("", 48),), bias=True),
        LayerSite("lm_head", "lm_head", inputs, (("", 40),)),
    )


_LARGE = (LayerSite("linear", "model.layers.0.mlp.down_proj", 1024, (("", 1024),)),)


def four_bits(kind: str, *, nested: bool = False) -> dict[str, Any]:
    """Return the `quantization_config` of codes of four bits."""
    own = {"load_in_4bit": True, "bnb_4bit_quant_type": kind, "bnb_4bit_use_double_quant": nested}
    return {"quant_method": "bitsandbytes", **own, "llm_int8_skip_modules": ["lm_head"]}


EIGHT_BITS = {"quant_method": "bitsandbytes", "load_in_8bit": True, "llm_int8_skip_modules": ["lm_head"]}


def samples() -> Iterator[CheckpointSample]:
    """Yield every kind of codes, blocks that cross rows, and layers whose memory says something."""
    yield _sample("int8", _sites(128), EIGHT_BITS)
    yield _sample("nf4", _sites(128), four_bits("nf4"))
    yield _sample("nf4, nested", _sites(128), four_bits("nf4", nested=True))
    yield _sample("nf4, across rows", _sites(96), four_bits("nf4", nested=True))
    yield _sample("fp4", _sites(128), four_bits("fp4"))
    yield _sample("large", _LARGE, EIGHT_BITS)


def _sample(name: str, sites: Sequence[LayerSite], quantization: Mapping[str, Any]) -> CheckpointSample:
    return quantized_sample(name, sites, quantization, partial(encoded, quantization))


def encoded(
    quantization: Mapping[str, Any], size: tuple[int, int], rng: torch.Generator
) -> tuple[dict[str, Tensor], Tensor]:
    """Return a random weight as the library stores it, and the values that it means."""
    if quantization.get("load_in_8bit"):
        codes = torch.randint(-127, 128, size, generator=rng)
        largest = torch.rand(size[0], generator=rng) + 0.1
        return {"weight": codes.to(torch.int8), "SCB": largest}, codes * largest[:, None] / 127
    kind, count = quantization["bnb_4bit_quant_type"], size[0] * size[1]
    codes = torch.randint(0, 16, (count,), generator=rng)
    state: dict[str, Any] = {"quant_type": kind, "blocksize": 64, "dtype": "bfloat16", "shape": list(size)}
    tensors = {
        "weight": (codes[::2] << 4 | codes[1::2]).to(torch.uint8).view(-1, 1),
        "weight.quant_map": TABLES[kind].clone(),
    }
    blocks = -(-count // 64)
    if quantization["bnb_4bit_use_double_quant"]:
        table, outer = torch.linspace(-1, 1, 256), torch.rand(-(-blocks // 256), generator=rng) / 10 + 0.1
        inner = torch.randint(0, 256, (blocks,), generator=rng)
        scales = table[inner] * outer.repeat_interleave(256)[:blocks] + 0.5
        tensors |= {"weight.absmax": inner.to(torch.uint8), "weight.nested_absmax": outer}
        tensors["weight.nested_quant_map"] = table
        state |= {"nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": 0.5}
    else:
        scales = torch.rand(blocks, generator=rng) + 0.1
        tensors["weight.absmax"] = scales
    written = torch.tensor(list(json.dumps(state).encode()), dtype=torch.uint8)
    tensors[f"weight.quant_state.bitsandbytes__{kind}"] = written
    values = TABLES[kind][codes] * scales.repeat_interleave(64)[:count]
    return tensors, values.view(size)
