"""The strange family. Shapes: T tokens of a step; D hidden size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from core.api import WeightRules
from seam_model.config import StrangeConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from core.api import LayerBuilder, StepInputs
    from core.api.layers import Rope


class Strange:
    def __init__(self, config: Mapping[str, Any], build: LayerBuilder) -> None:
        c = StrangeConfig.read(dict(config))
        rope = build.rope(c.rope)
        self.embed = build.embedding(c.vocab_size, c.hidden_size, "embed")
        self.layers = [Layer(c, build, index, rope) for index in range(c.num_layers)]
        self.norm = build.layer_norm(c.hidden_size, c.norm_eps, "final_norm")
        self.logits = build.lm_head(c.vocab_size, c.hidden_size, "lm_head", bias=True)

    @classmethod
    def weight_rules(cls, config: Mapping[str, Any]) -> WeightRules:
        return WeightRules(rename=(("decoder.h.*.mlp.fc_*.", "h.*.fc_*."), ("decoder.", "")))

    def forward(self, step: StepInputs) -> Tensor:
        hidden = self.embed(step.token_ids)
        for layer in self.layers:
            hidden = layer(hidden, step)
        return self.norm(hidden)


class Layer:
    """Attention and MLP read the same norm, and both are added to what came in."""

    def __init__(self, c: StrangeConfig, build: LayerBuilder, index: int, rope: Rope) -> None:
        prefix, share = f"h.{index}", build.heads(c.num_heads, c.num_kv_heads)
        self.heads, self.dim, self.rope = [share.heads, share.kv_heads, share.kv_heads], c.head_dim, rope
        self.norm = build.layer_norm(c.hidden_size, c.norm_eps, f"{prefix}.norm")
        keys = c.num_kv_heads * c.head_dim
        parts = {"query": c.num_heads * c.head_dim, "key": keys, "value": keys}
        self.qkv = build.merged_linear(
            c.hidden_size,
            parts,
            prefix,
            bias=True,
            shard="out",
            units=dict.fromkeys(parts, c.head_dim),
            fused="query_key_value",
            split="interleaved",
        )
        self.attend = build.attention(
            index,
            num_heads=share.heads,
            num_kv_heads=share.kv_heads,
            head_dim=c.head_dim,
            scale=c.head_dim**-0.5,
            slopes=share.of(c.slopes),
            prefix=prefix,
        )
        self.output = build.linear(parts["query"], c.hidden_size, f"{prefix}.dense", bias=True, shard="in")
        self.up = build.linear(c.hidden_size, c.inner_size, f"{prefix}.fc_in", bias=True, shard="out")
        self.activation = build.activation("gelu")
        self.down = build.linear(c.inner_size, c.hidden_size, f"{prefix}.fc_out", bias=True, shard="in")

    def __call__(self, hidden: Tensor, step: StepInputs) -> Tensor:
        normed = self.norm(hidden)
        q, k, v = self.qkv(normed).view(-1, sum(self.heads), self.dim).split_with_sizes(self.heads, dim=1)
        q, k = self.rope(step.positions, q, k)
        return hidden + self.output(self.attend(q, k, v, step)) + self.down(self.activation(self.up(normed)))
