"""Nomic BERT and Jina Embeddings v3: post-norm encoders with rotary positions, and MLPs with gates or without.

Shapes: T tokens of a step, all prompts one after another; D hidden size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from core.api import WeightRules
from core_plugin_bert.head import Head
from core_plugin_bert.nomic_config import NomicConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from core.api import LayerBuilder, StepInputs
    from core.api.layers import Rope


class NomicEncoder:
    """An encoder with the head of its checkpoint, if it has one."""

    def __init__(self, config: Mapping[str, Any], build: LayerBuilder) -> None:
        c = NomicConfig.read(config)
        self.words = build.embedding(c.vocab_size, c.hidden_size, "embeddings.word_embeddings")
        name = "embeddings.token_type_embeddings"
        self.types = build.embedding(c.type_rows, c.hidden_size, name, shard=None)
        self.two_types = c.type_rows > 1
        self.norm = build.layer_norm(c.hidden_size, c.norm_eps, "emb_ln")
        rope = build.rope(c.rope)
        self.layers = [NomicBlock(c, build, index, rope) for index in range(c.num_layers)]
        if c.head:
            self.classify = Head(c.hidden_size, c.head, build, c.norm_eps)

    @classmethod
    def weight_rules(cls, config: Mapping[str, Any]) -> WeightRules:
        """Take the encoder's prefix off, and leave out what nothing reads."""
        c, skip = NomicConfig.read(config), ["cls.*", "lm_head.*", "embeddings.position_ids"]
        if not any(layer.prefix.startswith("pooler.") for layer in c.head):
            skip += [f"{prefix}pooler.*" for prefix in ("", *c.kin.prefixes)]
        return WeightRules(rename=tuple((prefix, "") for prefix in c.kin.prefixes), skip=tuple(skip))

    def forward(self, step: StepInputs) -> Tensor:
        """Return the final hidden states, `(T, D)`."""
        types = getattr(step, "token_types", None) if self.two_types else None
        # Without pairs all are of type 0: one row for all tokens.
        shared = self.types(step.token_ids.new_zeros(1) if types is None else types)
        hidden = self.norm(self.words(step.token_ids) + shared)
        for layer in self.layers:
            hidden = layer(hidden, step)
        return hidden


class NomicBlock:
    """Attention and MLP, each followed by its norm."""

    def __init__(self, c: NomicConfig, build: LayerBuilder, index: int, rope: Rope) -> None:
        prefix, width, bias = f"encoder.layers.{index}", c.hidden_size, c.kin.bias
        heads = build.heads(c.num_heads, c.num_heads).heads
        self.view = (-1, 3, heads, c.head_dim)
        parts, units, path = (
            dict.fromkeys("qkv", width),
            dict.fromkeys("qkv", c.head_dim),
            f"{prefix}.{c.kin.attention}",
        )
        self.qkv = build.merged_linear(width, parts, path, bias=bias, shard="out", units=units, fused="Wqkv")
        self.rope = rope
        self.attend = build.encoder_attention(
            index, num_heads=heads, num_kv_heads=heads, head_dim=c.head_dim, scale=c.head_dim**-0.5
        )
        self.output = build.linear(width, width, f"{path}.out_proj", bias=bias, shard="in")
        self.attention_norm = build.layer_norm(width, c.norm_eps, f"{prefix}.norm1")
        parts, gated = dict.fromkeys(c.kin.widen, c.intermediate_size), len(c.kin.widen) > 1
        self.widen = build.merged_linear(width, parts, f"{prefix}.mlp", bias=bias, shard="out")
        self.activation = build.gated_activation(c.activation) if gated else build.activation(c.activation)
        self.down = build.linear(c.intermediate_size, width, f"{prefix}.mlp.fc2", bias=bias, shard="in")
        self.norm = build.layer_norm(width, c.norm_eps, f"{prefix}.norm2")

    def __call__(self, hidden: Tensor, step: StepInputs) -> Tensor:
        """`(T, D) -> (T, D)`."""
        q, k, v = self.qkv(hidden).view(self.view).unbind(1)
        q, k = self.rope(step.positions, q, k)
        hidden, _ = self.attention_norm.add(self.output(self.attend(q, k, v, step)), hidden)
        return self.norm.add(self.down(self.activation(self.widen(hidden))), hidden)[0]
