"""Decoders with a norm before and behind attention and MLP, and layers that see a window or the whole context.

Shapes: T tokens of a step, all requests one after another; D hidden size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from core.api import WeightRules
from core_plugin_gemma.config import GemmaConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from core.api import LayerBuilder, StepInputs
    from core.api.models import Norm

UNIT = 1.0
"""Offset of the weights of all norms: checkpoints store how far each factor is from 1."""


class CausalLM:
    """A decoder with its output projection."""

    def __init__(self, config: Mapping[str, Any], build: LayerBuilder) -> None:
        c = GemmaConfig.read(config)
        layers = [DecoderLayer(c, build, index) for index in range(len(c.kinds))]
        names = [f"model.layers.{index}.input_layernorm" for index in range(len(c.kinds))]
        norms = [build.rms_norm(c.hidden_size, c.norm_eps, name, offset=UNIT) for name in (*names, "model.norm")]
        scale = c.hidden_size**0.5
        self.embed_tokens = build.embedding(c.vocab_size, c.hidden_size, "model.embed_tokens", scale=scale)
        self.first_norm = norms[0]
        # Each layer with the norm behind it, so that every norm on the residual but the first also adds it up.
        self.layers = list(zip(layers, norms[1:], strict=True))
        tied_to = self.embed_tokens if c.tied else None
        self.project = build.lm_head(c.vocab_size, c.hidden_size, "lm_head", tied_to=tied_to)
        self.cap = c.final_softcap

    @classmethod
    def weight_rules(cls, config: Mapping[str, Any]) -> WeightRules:
        """Leave out the rotary frequencies that old checkpoints store."""
        return WeightRules(skip=("*.rotary_emb.inv_freq",), kv_scales="model.layers.{}.self_attn")

    def forward(self, step: StepInputs) -> Tensor:
        """Return the final hidden states, `(T, D)`."""
        residual = self.embed_tokens(step.token_ids)
        hidden = self.first_norm(residual)
        for layer, norm in self.layers:
            hidden, residual = norm.add(*layer(hidden, residual, step))
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        """Project `(rows, D)` to `(rows, vocab)`; float32 where they are capped."""
        logits = self.project(hidden)
        if self.cap is None:
            return logits
        # In 16 bits, near the cap, neighbouring logits would become equal.
        return logits.float().div_(self.cap).tanh_().mul_(self.cap)


class DecoderLayer:
    """Attention and MLP, each with a norm on what it adds to the residual."""

    def __init__(self, c: GemmaConfig, build: LayerBuilder, index: int) -> None:
        prefix = f"model.layers.{index}"

        def norm(name: str) -> Norm:
            return build.rms_norm(c.hidden_size, c.norm_eps, f"{prefix}.{name}", offset=UNIT)

        self.attention = SelfAttention(c, build, index)
        self.after_attention = norm("post_attention_layernorm")
        self.before_mlp = norm("pre_feedforward_layernorm")
        self.mlp = MLP(c, build, f"{prefix}.mlp")
        self.after_mlp = norm("post_feedforward_layernorm")

    def __call__(self, hidden: Tensor, residual: Tensor, step: StepInputs) -> tuple[Tensor, Tensor]:
        """Take `(normed input, residual)`; return `(output, residual)`, still to be added up. All are `(T, D)`."""
        attended = self.after_attention(self.attention(hidden, step))
        hidden, residual = self.before_mlp.add(attended, residual)
        return self.after_mlp(self.mlp(hidden)), residual


class SelfAttention:
    """Grouped-query attention, with norms on queries and keys where the architecture has them."""

    def __init__(self, c: GemmaConfig, build: LayerBuilder, index: int) -> None:
        prefix = f"model.layers.{index}.self_attn"
        share = build.heads(c.num_heads, c.num_kv_heads)
        self.heads = [share.heads, share.kv_heads, share.kv_heads]
        q_size, kv_size = c.num_heads * c.head_dim, c.num_kv_heads * c.head_dim
        self.view = (-1, sum(self.heads), c.head_dim)
        parts = {"q_proj": q_size, "k_proj": kv_size, "v_proj": kv_size}
        units = dict.fromkeys(parts, c.head_dim)
        self.qkv = build.merged_linear(c.hidden_size, parts, prefix, bias=c.bias, shard="out", units=units)
        self.output = build.linear(q_size, c.hidden_size, f"{prefix}.o_proj", bias=c.bias, shard="in")
        names = ("q_norm", "k_norm") if c.qk_norm else ()
        self.norms = [build.rms_norm(c.head_dim, c.norm_eps, f"{prefix}.{name}", offset=UNIT) for name in names]
        self.rope = build.rope(c.ropes[c.kinds[index]])
        self.attend = build.attention(
            index,
            num_heads=share.heads,
            num_kv_heads=share.kv_heads,
            head_dim=c.head_dim,
            scale=c.scale,
            window=c.windows[index],
            softcap=c.softcap,
        )

    def __call__(self, hidden: Tensor, step: StepInputs) -> Tensor:
        """`(T, D) -> (T, D)`."""
        heads = self.qkv(hidden).view(self.view)
        q, k, v = heads.split_with_sizes(self.heads, dim=1)  # (T, heads, head_dim), twice (T, kv_heads, head_dim)
        if self.norms:
            q_norm, k_norm = self.norms
            q, k = q_norm(q), k_norm(k)
        q, k = self.rope(step.positions, q, k)
        return self.output(self.attend(q, k, v, step))


class MLP:
    """`down(act(gate(x)) * up(x))`."""

    def __init__(self, c: GemmaConfig, build: LayerBuilder, prefix: str) -> None:
        parts = {"gate_proj": c.intermediate_size, "up_proj": c.intermediate_size}
        self.gate_up = build.merged_linear(c.hidden_size, parts, prefix, shard="out")
        self.activation = build.gated_activation(c.activation)
        self.down = build.linear(c.intermediate_size, c.hidden_size, f"{prefix}.down_proj", shard="in")

    def __call__(self, x: Tensor) -> Tensor:
        """`(T, D) -> (T, D)`."""
        return self.down(self.activation(self.gate_up(x)))
