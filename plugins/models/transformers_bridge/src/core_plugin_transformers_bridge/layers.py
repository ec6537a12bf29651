"""Modules of transformers whose weights are in layers of core. On the meta device they only say a result's shape."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

if TYPE_CHECKING:
    from torch import Tensor

    from core.api import LayerBuilder
    from core.api.layers import Embedding as CoreEmbedding
    from core.api.layers import Linear as CoreLinear


class Linear(nn.Linear):
    """A linear layer without weights of its own."""

    layer: CoreLinear
    layer_name: str

    def forward(self, input: Tensor) -> Tensor:
        """Return `(..., out_features)`."""
        if input.is_meta:
            if input.shape[-1] != self.in_features:
                raise ValueError(f"{self.layer_name} takes {self.in_features} numbers, not {input.shape[-1]}")
            return input.new_empty(*input.shape[:-1], self.out_features)
        return self.layer(input.reshape(-1, input.shape[-1])).view(*input.shape[:-1], self.out_features)


class Embedding(nn.Embedding):
    """An embedding without weights of its own.

    Attributes:
        weight: Of the weights' dtype and device, and empty: what a subclass adds may ask for these.
    """

    layer: CoreEmbedding

    def forward(self, input: Tensor) -> Tensor:
        """Return `(..., embedding_dim)`."""
        if input.is_meta:
            return torch.empty(*input.shape, self.embedding_dim, device="meta")
        rows = self.layer(input.reshape(-1))
        self.weight = rows.new_empty(0)
        return rows.view(*input.shape, self.embedding_dim)


def take_over(model: Any, build: LayerBuilder, tied: bool) -> None:
    """Let core's layers have the weights of linear layers and embeddings. `tied`: the output projection has those of
    the token embedding."""
    tokens, head = model.get_input_embeddings(), model.get_output_embeddings()
    for path, module in list(model.named_modules()):
        if isinstance(module, nn.Embedding):
            _become(module, Embedding)
            module._parameters.clear()
            module.weight = torch.empty(0, device="meta")
            shard = {} if module is tokens else {"shard": None}
            module.layer = build.embedding(module.num_embeddings, module.embedding_dim, path, **shard)
    for path, module in list(model.named_modules()):
        # One with a forward pass of its own reads its weights as it likes: they are parameters.
        if not isinstance(module, nn.Linear) or type(module).forward is not nn.Linear.forward:
            continue
        rows, columns, bias = module.out_features, module.in_features, module.bias is not None
        _become(module, Linear)
        module._parameters.clear()
        module.layer_name = path
        if module is head:
            module.layer = build.lm_head(rows, columns, path, tied_to=tokens.layer if tied else None, bias=bias)
        else:
            module.layer = build.linear(columns, rows, path, bias=bias)


def _become(module: Any, base: type[nn.Module]) -> None:
    """Give a module the class `base`, or one between it and the module's own: what its own adds stays."""
    own, plain = type(module), base.__mro__[1]
    module.__class__ = base if own is plain else type(own.__name__, (own, base), {})
