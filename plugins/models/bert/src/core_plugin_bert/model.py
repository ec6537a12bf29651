"""Post-norm encoders with learned positions and bidirectional attention.

Shapes: T tokens of a step, all prompts one after another; D hidden size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from core.api import WeightRules
from core_plugin_bert.config import EncoderConfig
from core_plugin_bert.distances import Distances
from core_plugin_bert.head import Head

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from core.api import LayerBuilder, StepInputs


class Encoder:
    """An encoder with the head of its checkpoint, if it has one."""

    def __init__(self, config: Mapping[str, Any], build: LayerBuilder) -> None:
        c = EncoderConfig.read(config)
        self.embeddings = Embeddings(c, build)
        bias = Distances(c, build) if c.distance_rows else None
        self.layers = [EncoderBlock(c, build, index, bias) for index in range(c.num_layers)]
        size = c.pooling.size
        self.project = build.linear(c.hidden_size, size, "linear") if size else None
        if c.head:
            self.classify = Head(c.hidden_size, c.head, build, c.norm_eps)

    @classmethod
    def weight_rules(cls, config: Mapping[str, Any]) -> WeightRules:
        """Take the encoder's prefix off, and leave out what nothing reads: index buffers and unused heads."""
        c = EncoderConfig.read(config)
        skip = ["embeddings.position_ids", "embeddings.token_type_ids", "cls.*", "lm_head.*", "vocab_*"]
        skip += [f"{c.prefix}.{name}" for name in skip[:2]]
        if not any(layer.prefix.startswith("pooler.") for layer in c.head):
            skip += ["pooler.*", f"{c.prefix}.pooler.*"]
        return WeightRules(rename=((f"{c.prefix}.", ""),), skip=tuple(skip))

    def forward(self, step: StepInputs) -> Tensor:
        """Return the final hidden states, `(T, D)`; of ColBERT what its linear layer makes of them."""
        hidden = self.embeddings(step)
        for layer in self.layers:
            hidden = layer(hidden, step)
        return hidden if self.project is None else self.project(hidden)


class Embeddings:
    """Sum of word, position and type embeddings, normalised."""

    def __init__(self, c: EncoderConfig, build: LayerBuilder) -> None:
        self.words = build.embedding(c.vocab_size, c.hidden_size, "embeddings.word_embeddings")
        name = "embeddings.position_embeddings"
        self.positions = build.embedding(c.position_rows, c.hidden_size, name, shard=None)
        self.types = None
        if c.type_rows:
            name = "embeddings.token_type_embeddings"
            self.types = build.embedding(c.type_rows, c.hidden_size, name, shard=None)
        self.norm = build.layer_norm(c.hidden_size, c.norm_eps, "embeddings.LayerNorm")
        self.offset = c.position_offset
        self.two_types = c.type_rows > 1

    def __call__(self, step: StepInputs) -> Tensor:
        """Return `(T, D)`."""
        places = step.positions + self.offset if self.offset else step.positions
        total = self.words(step.token_ids) + self.positions(places)
        if self.types is not None:
            types = getattr(step, "token_types", None) if self.two_types else None
            # Without pairs all are of type 0: one row for all tokens.
            total = total + self.types(step.token_ids.new_zeros(1) if types is None else types)
        return self.norm(total)


class EncoderBlock:
    """Attention and MLP, each followed by its norm."""

    def __init__(self, c: EncoderConfig, build: LayerBuilder, index: int, bias: Distances | None) -> None:
        names, prefix = c.names, c.names.layer.format(index)
        width, head_dim = c.hidden_size, c.hidden_size // c.num_heads
        heads = build.heads(c.num_heads, c.num_heads).heads
        self.view = (-1, 3, heads, head_dim)
        parts, units = dict.fromkeys(names.parts, width), dict.fromkeys(names.parts, head_dim)
        self.qkv = build.merged_linear(width, parts, f"{prefix}.{names.qkv}", bias=True, shard="out", units=units)
        self.attend = build.encoder_attention(
            index, num_heads=heads, num_kv_heads=heads, head_dim=head_dim, scale=head_dim**-0.5, bias=bias
        )
        self.output = build.linear(width, width, f"{prefix}.{names.attention_out}", bias=True, shard="in")
        self.attention_norm = build.layer_norm(width, c.norm_eps, f"{prefix}.{names.attention_norm}")
        self.up = build.linear(width, c.intermediate_size, f"{prefix}.{names.up}", bias=True, shard="out")
        self.activation = build.activation(c.activation)
        self.down = build.linear(c.intermediate_size, width, f"{prefix}.{names.down}", bias=True, shard="in")
        self.norm = build.layer_norm(width, c.norm_eps, f"{prefix}.{names.norm}")

    def __call__(self, hidden: Tensor, step: StepInputs) -> Tensor:
        """`(T, D) -> (T, D)`."""
        q, k, v = self.qkv(hidden).view(self.view).unbind(1)
        hidden, _ = self.attention_norm.add(self.output(self.attend(q, k, v, step)), hidden)
        return self.norm.add(self.down(self.activation(self.up(hidden))), hidden)[0]
