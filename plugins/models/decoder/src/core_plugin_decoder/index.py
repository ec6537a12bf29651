"""The index of latent attention as a description says. Shapes: T tokens of a step; D hidden size; K picks."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from core.api import LayerBuilder, StepInputs
    from core_plugin_decoder.description import LatentAttention


class Picked:
    """Picks of the latest index of a step: layers without one of their own see the same positions.

    Attributes:
        positions: `(T, K)` int32; None where every query sees all.
        layers: KV layers that are taken: the next index has this one.
    """

    def __init__(self, layers: int) -> None:
        self.positions: Tensor | None = None
        self.layers = layers


class Indexer:
    """Index queries of the queries' latent, index keys of the hidden state, and weights of the index heads.

    Its modules have the names that DeepSeek V3.2 gave them.
    """

    def __init__(self, attention: LatentAttention, build: LayerBuilder, hidden: int, path: str, picked: Picked) -> None:
        given, query = attention.index, attention.query_dim
        if given is None or query is None or attention.picks is None:
            raise ValueError(f"{path} has an index, and lacks its description, the queries' latent or the picks")
        self.view, self.picked, path = (-1, given.heads, given.key_dim), picked, f"{path}.{given.name}"
        self.query = build.linear(query, given.heads * given.key_dim, f"{path}.wq_b")
        self.key = build.linear(hidden, given.key_dim, f"{path}.wk")
        self.norm = build.layer_norm(given.key_dim, given.eps, f"{path}.k_norm")
        self.weigh = build.parameter(f"{path}.weights_proj.weight", (given.heads, hidden), dtype="float32")
        self.rope = build.rope(given.rope)
        self.pick = build.picker(
            picked.layers,
            num_heads=given.heads,
            key_dim=given.key_dim,
            scale=(given.heads * given.key_dim) ** -0.5,
            picks=attention.picks,
        )
        picked.layers += 1

    def __call__(self, hidden: Tensor, latent: Tensor, step: StepInputs) -> None:
        """Pick for this layer and those behind it: hidden states `(T, D)`, latents of the queries `(T, query_dim)`."""
        key = self.norm(self.key(hidden)).unsqueeze(1)
        q, key = self.rope(step.positions, self.query(latent).view(self.view), key)
        # In float32 whatever the compute dtype, as the reference has them: sums decide what is seen.
        weights = hidden.float() @ self.weigh().t()
        self.picked.positions = self.pick(q, key.squeeze(1), weights, step)
