"""Weights that files have as metadata: the numbers of each layer's xIELU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from core_plugin_gguf.header import Header
    from core_plugin_gguf.names import Conventions

_XIELU: Mapping[str, tuple[str, tuple[int, ...]]] = {
    "xielu.alpha_p": ("mlp.act_fn.alpha_p", (1,)),
    "xielu.alpha_n": ("mlp.act_fn.alpha_n", (1,)),
    "xielu.beta": ("mlp.act_fn.beta", ()),
}
"""Key -> module in a layer, and the tensor's shape."""


@dataclass(frozen=True, slots=True)
class Scalar:
    """A `WeightTensor` of one number."""

    name: str
    value: float
    shape: tuple[int, ...]
    encoding: str = "plain"

    def dense(self, dtype: torch.dtype) -> Tensor:
        """Return the number in `dtype`."""
        import torch

        return torch.full(self.shape, self.value, dtype=dtype)

    def raw(self) -> Tensor:
        """Return the number in float32."""
        import torch

        return self.dense(torch.float32)


def scalars(header: Header, conventions: Conventions) -> Iterator[Scalar]:
    """Yield a tensor for each number. Raises `CheckpointError` CORE-M141: no array of numbers."""
    for key, (module, shape) in _XIELU.items():
        for layer, value in enumerate(header.numbers(key) or ()):
            yield Scalar(f"{conventions.table.layer.format(layer)}.{module}", float(value), shape)
