"""GTE: post-norm encoders with rotary positions and gated MLPs.

Shapes: T tokens of a step, all prompts one after another; D hidden size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from core.api import WeightRules
from core_plugin_bert.gte_config import GteConfig
from core_plugin_bert.head import Head

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from core.api import LayerBuilder, StepInputs
    from core.api.layers import Rope


class GteEncoder:
    """An encoder with the head of its checkpoint, if it has one."""

    def __init__(self, config: Mapping[str, Any], build: LayerBuilder) -> None:
        c = GteConfig.read(config)
        self.words = build.embedding(c.vocab_size, c.hidden_size, "embeddings.word_embeddings")
        self.types, self.two_types = None, c.type_rows > 1
        if c.type_rows:
            name = "embeddings.token_type_embeddings"
            self.types = build.embedding(c.type_rows, c.hidden_size, name, shard=None)
        self.norm = build.layer_norm(c.hidden_size, c.norm_eps, "embeddings.LayerNorm")
        rope = build.rope(c.rope)
        self.layers = [GteBlock(c, build, index, rope) for index in range(c.num_layers)]
        if c.head:
            self.classify = Head(c.hidden_size, c.head, build, c.norm_eps)

    @classmethod
    def weight_rules(cls, config: Mapping[str, Any]) -> WeightRules:
        """Take the encoder's prefix off, and leave out what nothing reads."""
        skip, head = ["lm_head.*", "*rotary_emb.*"], GteConfig.read(config).head
        if not any(layer.prefix.startswith("pooler.") for layer in head):
            skip += ["pooler.*", "new.pooler.*", "gte.pooler.*"]
        if not head:
            skip.append("classifier.*")
        return WeightRules(rename=(("new.", ""), ("gte.", "")), skip=tuple(skip))

    def forward(self, step: StepInputs) -> Tensor:
        """Return the final hidden states, `(T, D)`."""
        hidden = self.words(step.token_ids)
        if self.types is not None:
            types = getattr(step, "token_types", None) if self.two_types else None
            # Without pairs all are of type 0: one row for all tokens.
            hidden = hidden + self.types(step.token_ids.new_zeros(1) if types is None else types)
        hidden = self.norm(hidden)
        for layer in self.layers:
            hidden = layer(hidden, step)
        return hidden


class GteBlock:
    """Attention and gated MLP, each followed by its norm."""

    def __init__(self, c: GteConfig, build: LayerBuilder, index: int, rope: Rope) -> None:
        prefix, width = f"encoder.layer.{index}", c.hidden_size
        heads = build.heads(c.num_heads, c.num_heads).heads
        self.view, self.rope = (-1, 3, heads, c.head_dim), rope
        parts, units, path = dict.fromkeys("qkv", width), dict.fromkeys("qkv", c.head_dim), f"{prefix}.attention"
        self.qkv = build.merged_linear(width, parts, path, bias=True, shard="out", units=units, fused="qkv_proj")
        self.attend = build.encoder_attention(
            index, num_heads=heads, num_kv_heads=heads, head_dim=c.head_dim, scale=c.head_dim**-0.5
        )
        self.output = build.linear(width, width, f"{prefix}.attention.o_proj", bias=True, shard="in")
        self.attention_norm = build.layer_norm(width, c.norm_eps, f"{prefix}.attn_ln")
        sizes = dict.fromkeys(("up", "gate"), c.intermediate_size)
        self.widen = build.merged_linear(width, sizes, f"{prefix}.mlp", shard="out", fused="up_gate_proj")
        self.activation = build.activation(c.activation)
        self.down = build.linear(c.intermediate_size, width, f"{prefix}.mlp.down_proj", bias=True, shard="in")
        self.norm = build.layer_norm(width, c.norm_eps, f"{prefix}.mlp_ln")

    def __call__(self, hidden: Tensor, step: StepInputs) -> Tensor:
        """`(T, D) -> (T, D)`."""
        q, k, v = self.qkv(hidden).view(self.view).unbind(1)
        q, k = self.rope(step.positions, q, k)
        hidden, _ = self.attention_norm.add(self.output(self.attend(q, k, v, step)), hidden)
        up, gate = self.widen(hidden).chunk(2, dim=-1)
        return self.norm.add(self.down(self.activation(gate) * up), hidden)[0]
