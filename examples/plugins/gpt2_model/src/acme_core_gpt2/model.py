"""GPT-2. Shapes: T tokens of a step, all requests one after another; D hidden size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from acme_core_gpt2.config import GPT2Config
from core.api import WeightRules

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from core.api import LayerBuilder, StepInputs


class GPT2:
    """A decoder whose output projection is its token embedding."""

    def __init__(self, config: Mapping[str, Any], build: LayerBuilder) -> None:
        c = GPT2Config.read(config)
        self.tokens = build.embedding(c.vocab_size, c.hidden_size, "transformer.wte")
        self.positions = build.embedding(c.positions, c.hidden_size, "transformer.wpe", shard=None)
        self.blocks = [Block(c, build, index) for index in range(c.num_layers)]
        self.norm = build.layer_norm(c.hidden_size, c.norm_eps, "transformer.ln_f")
        tied_to = self.tokens if c.tied else None
        self.logits = build.lm_head(c.vocab_size, c.hidden_size, "lm_head", tied_to=tied_to)

    @classmethod
    def weight_rules(cls, config: Mapping[str, Any]) -> WeightRules:
        """Turn the matrices of `Conv1D` round; leave out stored masks; accept names without `transformer.`."""
        return WeightRules(
            rename=tuple((name, f"transformer.{name}") for name in ("wte.", "wpe.", "h.", "ln_f.")),
            skip=("*.attn.bias", "*.attn.masked_bias"),
            transpose=("*.c_attn.weight", "*.c_proj.weight", "*.c_fc.weight"),
        )

    def forward(self, step: StepInputs) -> Tensor:
        """Return the final hidden states, `(T, D)`."""
        hidden = self.tokens(step.token_ids) + self.positions(step.positions)
        for block in self.blocks:
            hidden = block(hidden, step)
        return self.norm(hidden)


class Block:
    """Attention and MLP, each behind a layer norm and added to what came in."""

    def __init__(self, c: GPT2Config, build: LayerBuilder, index: int) -> None:
        prefix = f"transformer.h.{index}"
        heads = build.heads(c.num_heads, c.num_heads).heads
        self.view = (-1, 3, heads, c.head_dim)
        self.norm = build.layer_norm(c.hidden_size, c.norm_eps, f"{prefix}.ln_1")
        parts, units = dict.fromkeys("qkv", c.hidden_size), dict.fromkeys("qkv", c.head_dim)
        self.qkv = build.merged_linear(
            c.hidden_size, parts, f"{prefix}.attn", bias=True, shard="out", units=units, fused="c_attn"
        )
        self.attend = build.attention(
            index,
            num_heads=heads,
            num_kv_heads=heads,
            head_dim=c.head_dim,
            scale=c.head_dim**-0.5 if c.scaled else 1.0,
            prefix=f"{prefix}.attn",
        )
        self.output = build.linear(c.hidden_size, c.hidden_size, f"{prefix}.attn.c_proj", bias=True, shard="in")
        self.mlp_norm = build.layer_norm(c.hidden_size, c.norm_eps, f"{prefix}.ln_2")
        self.widen = build.linear(c.hidden_size, c.inner_size, f"{prefix}.mlp.c_fc", bias=True, shard="out")
        self.activation = build.activation(c.activation)
        self.narrow = build.linear(c.inner_size, c.hidden_size, f"{prefix}.mlp.c_proj", bias=True, shard="in")

    def __call__(self, hidden: Tensor, step: StepInputs) -> Tensor:
        """`(T, D) -> (T, D)`."""
        q, k, v = self.qkv(self.norm(hidden)).view(self.view).unbind(1)
        hidden = hidden + self.output(self.attend(q, k, v, step))
        return hidden + self.narrow(self.activation(self.widen(self.mlp_norm(hidden))))
