"""Tiny HQQ checkpoints for the conformance kit, written from the format's definition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from core.api import LayerSite
from core_testing.conformance import CheckpointSample, quantized_sample

_LARGE = (LayerSite("linear", "model.layers.0.mlp.down_proj", 1024, (("", 1024),)),)
_COUNTS = {8: 1, 4: 2, 3: 10, 2: 4, 1: 8}
"""Codes that an element holds."""


def _sites(inputs: int) -> tuple[LayerSite, ...]:
    return (
        LayerSite("embedding", "model.embed_tokens", inputs, (("", 40),)),
        LayerSite("linear", "model.layers.0.self_attn", inputs, (("q_proj", 64), ("k_proj", 32), ("v_proj", 32))),
        LayerSite("linear", "model.layers.0.mlp.up_proj", inputs, (("", 48),), bias=True),
        LayerSite("lm_head", "lm_head", inputs, (("", 40),)),
    )


def settings(bits: int = 4, size: int | None = 64, axis: int = 1, **further: Any) -> dict[str, Any]:
    """Return the settings of a layer, as the library writes them."""
    own = {"nbits": bits, "channel_wise": True, "group_size": size, "optimize": True, "round_zero": bits == 4}
    shared = {"weight_quant_params": {**own, "axis": axis, "view_as_float": False}, "offload_meta": False}
    return {**shared, "scale_quant_params": None, "zero_quant_params": None, **further}


def described(given: dict[str, Any]) -> dict[str, Any]:
    """Return a `quantization_config` as transformers writes it."""
    return {"quant_method": "hqq", "quant_config": given, "skip_modules": ["lm_head"]}


def samples() -> Iterator[CheckpointSample]:
    """Yield every width and axis, groups of one output and across outputs, and a layer whose memory says something."""
    for bits in _COUNTS:
        yield _sample(f"{bits} bits", _sites(128), settings(bits))
        yield _sample(f"{bits} bits, axis 0", _sites(128), settings(bits, axis=0))
    yield _sample("by outputs", _sites(128), settings(size=None))
    yield _sample("by inputs", _sites(128), settings(size=None, axis=0))
    yield _sample("across outputs", _sites(96), settings())
    yield _sample("large", _LARGE, settings())


def _sample(name: str, sites: Sequence[LayerSite], given: dict[str, Any]) -> CheckpointSample:
    return quantized_sample(name, sites, described(given), partial(encoded, given))


def encoded(given: dict[str, Any], size: tuple[int, int], rng: torch.Generator) -> tuple[dict[str, Tensor], Tensor]:
    """Return a random weight as the library stores it, and the values that it means."""
    own = given["weight_quant_params"]
    bits, each, axis = own["nbits"], own["group_size"], own["axis"]
    shape = size if each is None else (-1, each) if axis == 1 else (each, -1)
    codes = torch.randint(0, 1 << bits, size, generator=rng).reshape(shape)
    shared = (len(codes), 1) if axis == 1 else (1, codes.shape[1])
    scale = (torch.rand(shared, generator=rng) + 0.5).half()
    zero = (torch.rand(shared, generator=rng) * (1 << bits)).half()
    stored = {"W_q": _pack(codes, bits), "scale": scale, "zero": zero, "shape": torch.tensor(size)}
    stored |= {"nbits": torch.tensor(bits, dtype=torch.int32), "axis": torch.tensor(axis, dtype=torch.int32)}
    stored |= {"packing": torch.tensor(list(b"4bit_u8"), dtype=torch.uint8)}
    stored["group_size"] = torch.tensor(each or size[axis], dtype=torch.int32)
    return stored, ((codes - zero.float()) * scale.float()).reshape(size)


def _pack(codes: Tensor, bits: int) -> Tensor:
    """Return the rows of codes packed: the first of the equal parts of a matrix in the highest bits."""
    count = _COUNTS[bits]
    whole = torch.cat((codes, codes.new_zeros(-len(codes) % count, codes.shape[1])))
    packed = torch.zeros(len(whole) // count, codes.shape[1], dtype=torch.int64)
    for place, rows in enumerate(whole.chunk(count)):
        packed |= rows << bits * (count - 1 - place)
    return packed.to(torch.int32 if bits == 3 else torch.uint8)
