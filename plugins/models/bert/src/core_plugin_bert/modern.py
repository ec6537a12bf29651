"""ModernBERT: pre-norm encoders with rotary positions, gated MLPs, and local attention in most layers.

Shapes: T tokens of a step, all prompts one after another; D hidden size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from core.api import WeightRules
from core_plugin_bert.head import Head
from core_plugin_bert.modern_config import LOCAL, ModernConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from core.api import LayerBuilder, StepInputs


class ModernEncoder:
    """An encoder with the head of its checkpoint, if it has one."""

    def __init__(self, config: Mapping[str, Any], build: LayerBuilder) -> None:
        c = ModernConfig.read(config)
        self.words = build.embedding(c.vocab_size, c.hidden_size, "embeddings.tok_embeddings")
        self.first_norm = build.layer_norm(c.hidden_size, c.norm_eps, "embeddings.norm", bias=c.norm_bias)
        self.layers = [ModernBlock(c, build, index) for index in range(len(c.kinds))]
        self.last_norm = build.layer_norm(c.hidden_size, c.norm_eps, "final_norm", bias=c.norm_bias)
        if c.head:
            self.classify = Head(c.hidden_size, c.head, build, c.norm_eps, norm_bias=c.norm_bias)

    @classmethod
    def weight_rules(cls, config: Mapping[str, Any]) -> WeightRules:
        """Take the encoder's prefix off, and leave out the masked-language-model head where nothing reads it."""
        skip = ("decoder.*",) if ModernConfig.read(config).head else ("decoder.*", "head.*")
        return WeightRules(rename=(("model.", ""),), skip=skip)

    def forward(self, step: StepInputs) -> Tensor:
        """Return the final hidden states, `(T, D)`."""
        hidden = self.first_norm(self.words(step.token_ids))
        for layer in self.layers:
            hidden = layer(hidden, step)
        return self.last_norm(hidden)


class ModernBlock:
    """Attention and gated MLP, each behind a norm; the first layer finds its input normalised already."""

    def __init__(self, c: ModernConfig, build: LayerBuilder, index: int) -> None:
        prefix, width = f"layers.{index}", c.hidden_size
        heads = build.heads(c.num_heads, c.num_heads).heads
        self.view = (-1, 3, heads, c.head_dim)
        self.norm = build.layer_norm(width, c.norm_eps, f"{prefix}.attn_norm", bias=c.norm_bias) if index else None
        parts, units = dict.fromkeys("qkv", width), dict.fromkeys("qkv", c.head_dim)
        self.qkv = build.merged_linear(
            width, parts, f"{prefix}.attn", bias=c.attention_bias, shard="out", units=units, fused="Wqkv"
        )
        self.rope = build.rope(c.ropes[c.kinds[index]])
        self.attend = build.encoder_attention(
            index,
            num_heads=heads,
            num_kv_heads=heads,
            head_dim=c.head_dim,
            scale=c.head_dim**-0.5,
            window=c.window if c.kinds[index] == LOCAL else None,
        )
        self.output = build.linear(width, width, f"{prefix}.attn.Wo", bias=c.attention_bias, shard="in")
        self.mlp_norm = build.layer_norm(width, c.norm_eps, f"{prefix}.mlp_norm", bias=c.norm_bias)
        parts = dict.fromkeys(("gate", "up"), c.intermediate_size)
        self.up = build.merged_linear(width, parts, f"{prefix}.mlp", bias=c.mlp_bias, shard="out", fused="Wi")
        self.activation = build.gated_activation(c.activation)
        self.down = build.linear(c.intermediate_size, width, f"{prefix}.mlp.Wo", bias=c.mlp_bias, shard="in")

    def __call__(self, hidden: Tensor, step: StepInputs) -> Tensor:
        """`(T, D) -> (T, D)`."""
        normed = hidden if self.norm is None else self.norm(hidden)
        q, k, v = self.qkv(normed).view(self.view).unbind(1)
        q, k = self.rope(step.positions, q, k)
        normed, hidden = self.mlp_norm.add(self.output(self.attend(q, k, v, step)), hidden)
        return hidden + self.down(self.activation(self.up(normed)))
