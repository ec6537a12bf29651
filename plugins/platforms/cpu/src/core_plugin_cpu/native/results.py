"""Results of torch operations before they are made: sizes, strides and dtypes, without numbers.

Torch's meta device tells them. For operations by elements it does so in Python, where many of them import the compiler
first (`torch._dynamo`, with sympy and Triton): over a second, and a hundred MiB that the process keeps. Those are made
on tensors of two elements a dimension instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

SHARED = object()
"""Stands for a result that lies in the memory of its arguments."""


def result_of(func: Any, args: Any, kwargs: Any) -> Any:
    """Return tensors of the meta device like those that `func` gives; `SHARED` for a view.

    Raises:
        Exception: Whatever torch raises; also where sizes depend on numbers.
    """
    if torch.Tag.pointwise in func.tags and "out" not in kwargs:
        tensors = [one for one in tree_leaves((args, kwargs)) if isinstance(one, Tensor)]
        return _twin(tensors[0]) if func._schema.is_mutable else _by_elements(func, args, kwargs, tensors)
    return _on_meta(func, args, kwargs)


def _by_elements(func: Any, args: Any, kwargs: Any, tensors: Sequence[Tensor]) -> Tensor:
    """Return the result of an operation by elements, by a call with small tensors in the same order of strides."""
    shape = np.broadcast_shapes(*(tuple(one.shape) for one in tensors))  # torch's own imports sympy
    small = func(*tree_map(_small, tuple(args)), **tree_map(_small, kwargs))
    return torch.empty_strided(shape, _dense(shape, small.stride()), dtype=small.dtype, device="meta")


def _small(leaf: Any) -> Any:
    """Return ones with at most two elements a dimension, in the order of a tensor's; all else as it is."""
    if not isinstance(leaf, Tensor):
        return leaf
    sizes = [min(size, 2) for size in leaf.shape]
    strides = [step if apart else 0 for step, apart in zip(_dense(sizes, leaf.stride()), leaf.stride())]
    return torch.empty_strided(sizes, strides, dtype=leaf.dtype).fill_(1)


def _dense(sizes: Sequence[int], like: Sequence[int]) -> list[int]:
    """Return strides without gaps, in the order of `like`; of equal ones, the last is the smallest."""
    strides, step = [0] * len(sizes), 1
    for dim in sorted(range(len(sizes)), key=lambda dim: (like[dim], -dim)):
        strides[dim] = step
        step *= max(sizes[dim], 1)
    return strides


def _on_meta(func: Any, args: Any, kwargs: Any) -> Any:
    twins: set[int] = set()

    def twin(leaf: Any) -> Any:
        if isinstance(leaf, Tensor):
            found = _twin(leaf)
            twins.add(found.untyped_storage()._cdata)
            return found
        return torch.device("meta") if isinstance(leaf, torch.device) else leaf

    named = {"device": torch.device("cpu")} if any(one.name == "device" for one in func._schema.arguments) else {}
    named = {} if any(isinstance(one, Tensor) for one in tree_leaves(args)) else named
    found = func(*tree_map(twin, tuple(args)), **tree_map(twin, {**named, **kwargs}))
    results = [one for one in tree_leaves(found) if isinstance(one, Tensor)]
    shared = [one.untyped_storage()._cdata in twins for one in results]
    return SHARED if results and all(shared) and not func._schema.is_mutable else found


def _twin(tensor: Tensor) -> Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
