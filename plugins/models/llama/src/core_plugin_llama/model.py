"""Pre-norm decoders with rotary embedding, grouped-query attention and a gated MLP.

Shapes: T tokens of a step, all requests one after another; D hidden size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from core.api import WeightRules
from core_plugin_llama.config import DecoderConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from core.api import LayerBuilder, StepInputs
    from core.api.models import Rope


class CausalLM:
    """A decoder with its output projection, or the head that its checkpoint has instead."""

    def __init__(self, config: Mapping[str, Any], build: LayerBuilder) -> None:
        c = DecoderConfig.read(config)
        rope = build.rope(c.rope)
        names = [f"model.layers.{index}.input_layernorm" for index in range(len(c.windows))]
        norms = [build.rms_norm(c.hidden_size, c.norm_eps, name) for name in (*names, "model.norm")]
        layers = [DecoderLayer(c, build, index, rope) for index in range(len(c.windows))]
        self.embed_tokens = build.embedding(c.vocab_size, c.hidden_size, "model.embed_tokens")
        self.first_norm = norms[0]
        # Each layer with the norm behind it, so that every norm but the first also adds up the residual.
        self.layers = list(zip(layers, norms[1:], strict=True))
        if c.projects:
            tied_to = self.embed_tokens if c.tied else None
            self.logits = build.lm_head(c.vocab_size, c.hidden_size, "lm_head", tied_to=tied_to)
        elif c.pooling is not None and c.pooling.labels:
            self.classify = build.linear(c.hidden_size, len(c.pooling.labels), "score")

    @classmethod
    def weight_rules(cls, config: Mapping[str, Any]) -> WeightRules:
        """Leave out the rotary frequencies that old checkpoints store; embedding models often have no prefix."""
        same = ("model.", "model.")
        bare = tuple((name, f"model.{name}") for name in ("layers.", "embed_tokens.", "norm."))
        skip = (
            ("*.rotary_emb.inv_freq",)
            if DecoderConfig.read(config).projects
            else ("*.rotary_emb.inv_freq", "lm_head.*")
        )
        return WeightRules(rename=(same, *bare), skip=skip, kv_scales="model.layers.{}.self_attn")

    def forward(self, step: StepInputs) -> Tensor:
        """Return the final hidden states, `(T, D)`."""
        residual = self.embed_tokens(step.token_ids)
        hidden = self.first_norm(residual)
        for layer, norm in self.layers:
            hidden, residual = norm.add(*layer(hidden, residual, step))
        return hidden


class DecoderLayer:
    """Attention and MLP, with the norm between them."""

    def __init__(self, c: DecoderConfig, build: LayerBuilder, index: int, rope: Rope) -> None:
        prefix = f"model.layers.{index}"
        self.attention = SelfAttention(c, build, index, rope)
        self.norm = build.rms_norm(c.hidden_size, c.norm_eps, f"{prefix}.post_attention_layernorm")
        self.mlp = MLP(c, build, f"{prefix}.mlp")

    def __call__(self, hidden: Tensor, residual: Tensor, step: StepInputs) -> tuple[Tensor, Tensor]:
        """Take `(normed input, residual)`; return `(output, residual)`, still to be added up. All are `(T, D)`."""
        hidden, residual = self.norm.add(self.attention(hidden, step), residual)
        return self.mlp(hidden), residual


class SelfAttention:
    """Grouped-query attention, with norms on queries and keys where the architecture has them."""

    def __init__(self, c: DecoderConfig, build: LayerBuilder, index: int, rope: Rope) -> None:
        prefix = f"model.layers.{index}.self_attn"
        share = build.heads(c.num_heads, c.num_kv_heads)
        self.heads = [share.heads, share.kv_heads, share.kv_heads]
        self.view = (-1, sum(self.heads), c.head_dim)
        q_size, kv_size = c.num_heads * c.head_dim, c.num_kv_heads * c.head_dim
        parts = {"q_proj": q_size, "k_proj": kv_size, "v_proj": kv_size}
        units = dict.fromkeys(parts, c.head_dim)
        self.qkv = build.merged_linear(c.hidden_size, parts, prefix, bias=c.qkv_bias, shard="out", units=units)
        self.output = build.linear(q_size, c.hidden_size, f"{prefix}.o_proj", bias=c.output_bias, shard="in")
        self.q_norm = build.rms_norm(c.head_dim, c.norm_eps, f"{prefix}.q_norm") if c.qk_norm else None
        self.k_norm = build.rms_norm(c.head_dim, c.norm_eps, f"{prefix}.k_norm") if c.qk_norm else None
        self.rope = rope
        make = build.attention if c.causal else build.encoder_attention
        self.attend = make(
            index,
            num_heads=share.heads,
            num_kv_heads=share.kv_heads,
            head_dim=c.head_dim,
            scale=c.head_dim**-0.5,
            window=c.windows[index],
        )

    def __call__(self, hidden: Tensor, step: StepInputs) -> Tensor:
        """`(T, D) -> (T, D)`."""
        heads = self.qkv(hidden).view(self.view)
        q, k, v = heads.split_with_sizes(self.heads, dim=1)  # (T, heads, head_dim), twice (T, kv_heads, head_dim)
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k = self.rope(step.positions, q, k)
        return self.output(self.attend(q, k, v, step))


class MLP:
    """`down(act(gate(x)) * up(x))`."""

    def __init__(self, c: DecoderConfig, build: LayerBuilder, prefix: str) -> None:
        parts = {"gate_proj": c.intermediate_size, "up_proj": c.intermediate_size}
        self.gate_up = build.merged_linear(c.hidden_size, parts, prefix, bias=c.mlp_bias, shard="out")
        self.activation = build.gated_activation(c.activation)
        self.down = build.linear(c.intermediate_size, c.hidden_size, f"{prefix}.down_proj", bias=c.mlp_bias, shard="in")

    def __call__(self, x: Tensor) -> Tensor:
        """`(T, D) -> (T, D)`."""
        return self.down(self.activation(self.gate_up(x)))
