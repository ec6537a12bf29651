"""Linear layers behind pooling, which sentence-transformers keeps in folders beside a checkpoint."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional

from core.api.errors import CheckpointError

if TYPE_CHECKING:
    from core.api.shapes import PoolingDense
    from core.api.weights import CheckpointReader

_WEIGHT, _BIAS = "linear.weight", "linear.bias"

_ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = types.MappingProxyType(
    {
        "none": lambda x: x,
        "tanh": torch.tanh,
        "relu": functional.relu,
        "gelu": functional.gelu,
        "silu": functional.silu,
        "sigmoid": torch.sigmoid,
    }
)


class DenseLayers:
    """`(rows, hidden) -> (rows, size)`, computed in float32: vectors are few, and their last digits are compared."""

    def __init__(self, layers: Sequence[tuple[Tensor, Tensor | None, Callable[[Tensor], Tensor]]]) -> None:
        self._layers = layers

    def __call__(self, pooled: Tensor) -> Tensor:
        """Return the vectors; as they are where there is no layer."""
        for weight, bias, activation in self._layers:
            pooled = activation(functional.linear(pooled.float(), weight, bias))
        return pooled


def load_dense(
    reader: CheckpointReader, checkpoint: Path, layers: Sequence[PoolingDense], device: torch.device
) -> DenseLayers:
    """Read the weights of the layers.

    Raises:
        CheckpointError: CORE-M136, they are not there or are of another shape.
    """
    return DenseLayers([_loaded(reader, checkpoint / layer.folder, layer, device) for layer in layers])


def _loaded(
    reader: CheckpointReader, folder: Path, layer: PoolingDense, device: torch.device
) -> tuple[Tensor, Tensor | None, Callable[[Tensor], Tensor]]:
    found = {
        tensor.name: tensor.dense(torch.float32).clone().to(device)
        for tensor in reader.tensors(folder, lambda _: None)
        if tensor.name in (_WEIGHT, _BIAS)
    }
    weight, bias = found.get(_WEIGHT), found.get(_BIAS)
    if weight is None or weight.ndim != 2 or len(weight) != layer.out_features:
        shape = "missing" if weight is None else f"of shape {tuple(weight.shape)}"
        raise CheckpointError(
            "CORE-M136", f"{_WEIGHT} in {folder} is {shape}; the module has {layer.out_features} outputs."
        )
    if bias is not None and bias.shape != (layer.out_features,):
        raise CheckpointError(
            "CORE-M136", f"{_BIAS} in {folder} is of shape {tuple(bias.shape)}, not ({layer.out_features},)."
        )
    return weight, bias, _ACTIVATIONS[layer.activation]
