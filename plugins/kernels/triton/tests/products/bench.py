"""Activations and distances for the tests of products."""

import torch

INPUTS = 200
"""No multiple of a tile; blocks of files have whole ones."""


def inputs_of(form):
    return 256 if form.codes.startswith("gguf:") else INPUTS


def activations(rows, inputs, dtype=torch.float32, seed=5):
    return torch.randn(rows, inputs, generator=torch.Generator().manual_seed(seed)).to(dtype)


def off(found, wanted):
    return float((found.double() - wanted.double()).norm() / wanted.double().norm())


def same_bits(found, wanted):
    return found.dtype == wanted.dtype and torch.equal(found.nan_to_num(7e7), wanted.nan_to_num(7e7))


def bordered(tensor):
    """Return the same numbers between others that nobody may read."""
    edge = torch.full((64,), float("nan")) if tensor.is_floating_point() else torch.full((64,), 127)
    flat = torch.cat([edge.to(tensor.dtype), tensor.flatten(), edge.to(tensor.dtype)])
    return flat[64:-64].view(tensor.shape)
