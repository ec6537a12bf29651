"""Classification heads: linear layers with activations and norms between them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from core.api import LayerBuilder
    from core.api.layers import Activation
    from core_plugin_bert.heads import Dense


class Head:
    """`(rows, hidden) -> (rows, labels)`."""

    def __init__(
        self, hidden_size: int, layers: Sequence[Dense], build: LayerBuilder, eps: float, *, norm_bias: bool = True
    ) -> None:
        self.layers = []
        for layer in layers:
            linear = build.linear(hidden_size, layer.out_features, layer.prefix, bias=layer.bias)
            hidden_size = layer.out_features
            norm = build.layer_norm(hidden_size, eps, layer.norm, bias=norm_bias) if layer.norm else None
            self.layers.append((linear, _activation(build, layer.then), norm))

    def __call__(self, pooled: Tensor) -> Tensor:
        """Return one number per label."""
        for linear, activation, norm in self.layers:
            pooled = activation(linear(pooled))
            pooled = pooled if norm is None else norm(pooled)
        return pooled


def _activation(build: LayerBuilder, name: str) -> Activation:
    if name == "tanh":
        return _tanh
    return build.activation(name) if name else _same


def _same(x: Tensor) -> Tensor:
    return x


def _tanh(x: Tensor) -> Tensor:
    return torch.tanh(x)
