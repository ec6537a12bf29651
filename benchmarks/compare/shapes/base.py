"""What a shape is: the tensors of a model in the two layouts, and what a step does with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

CACHED = 2
"""Bytes of an element of the KV cache."""

Sizes = Iterator[tuple[str, tuple[int, ...]]]
"""Names and shapes of a checkpoint's tensors."""


@dataclass(frozen=True)
class Span:
    """A layer that attends.

    Attributes:
        values: Elements that it caches of a token.
        products: Multiply-adds of a pair of a query and a key, in all heads.
        window: Tokens that a query sees; 0: all before it.
    """

    values: int
    products: int
    window: int = 0

    def seen(self, tokens: int) -> int:
        """Return the tokens that it keeps of so many."""
        return min(tokens, self.window) if self.window else tokens

    def pairs(self, tokens: int) -> int:
        """Return the pairs of a query and a key in a prompt."""
        near = self.seen(tokens)
        return near * (near + 1) // 2 + (tokens - near) * near


@dataclass(frozen=True)
class Shape:
    """A model, whole or cut to some of its layers.

    Attributes:
        title: What the page calls it.
        config: What its `config.json` says, beside what all shapes share.
        layer: Returns the tensors of a layer, names behind `model.layers.N.`.
        arch: llama.cpp's name of the architecture.
        metadata: Of its GGUF file, names behind the architecture's.
        gguf: Returns the tensors of a layer as a GGUF file has them, names behind `blk.N.`.
        spans: Of each layer that attends.
        tied: Whether the embedding is the output projection as well.
        states: Bytes that layers of recurrences keep of a text, however long it is.
        active: Share of the experts that a token is given to; 1: there are none.
        direct: Types in which its GGUF file is written at once; others are made of the `BF16` one by llama.cpp's
            `llama-quantize`, which gives some tensors finer types, as published files have them.
    """

    title: str
    config: Mapping[str, Any]
    layer: Callable[[int], Sizes]
    arch: str
    metadata: Mapping[str, Any]
    gguf: Callable[[int], Sizes]
    spans: tuple[Span, ...]
    hidden: int = 2048
    layers: int = 4
    vocabulary: int = 32_000
    tied: bool = False
    states: int = 0
    active: float = 1.0
    direct: tuple[str, ...] = field(default=("BF16",))

    def tensors(self) -> Sizes:
        """Yield the tensors of a checkpoint in Hugging Face's layout."""
        ends = {"model.embed_tokens": 2, "model.norm": 1, "lm_head": 2}
        return self._all(self.layer, "model.layers.{}.", ends)

    def gguf_tensors(self) -> Sizes:
        """Yield the tensors of a GGUF file."""
        return self._all(self.gguf, "blk.{}.", {"token_embd": 2, "output_norm": 1, "output": 2})

    def cut(self, layers: int) -> Shape:
        """Return the shape with its first layers only."""
        title = f"{layers} of {self.layers} layers of {self.title}"
        return replace(self, title=title, layers=layers, spans=self.spans[:layers])

    def kv_bytes(self, tokens: int, streams: int = 1) -> int:
        """Return what the cache and the states hold of `streams` texts of `tokens` tokens."""
        return streams * (self.states + sum(CACHED * span.values * span.seen(tokens) for span in self.spans))

    def share(self, name: str) -> float:
        """Return the share of a tensor, of either layout, that one token is multiplied with."""
        if "embed" in name or "token_embd" in name:
            return float(self.tied)
        routed = "_exps" in name or ".experts." in name
        return self.active if routed else 1.0

    def prompt_products(self, tokens: int) -> float:
        """Return the multiply-adds of a prompt: of its weights, those of the output for one token only."""
        total = 0.0
        for name, size in self.tensors():
            if len(size) > 1:
                head = name.startswith(("model.embed_tokens", "lm_head"))
                total += self.share(name) * prod(size) * (1 if head else tokens)
        return total + sum(span.products * span.pairs(tokens) for span in self.spans)

    def _all(self, layer: Callable[[int], Sizes], prefix: str, ends: Mapping[str, int]) -> Sizes:
        for name, dims in ends.items():
            if not (self.tied and name in ("lm_head", "output")):
                yield f"{name}.weight", (self.vocabulary, self.hidden) if dims == 2 else (self.hidden,)
        for number in range(self.layers):
            for name, size in layer(number):
                yield prefix.format(number) + name, size


def norms(hidden: int) -> tuple[tuple[str, int], ...]:
    """Return the two norms of a layer in Hugging Face's layout."""
    return ("input_layernorm", hidden), ("post_attention_layernorm", hidden)


def mlp(prefix: str, size: int, hidden: int) -> Sizes:
    """Yield a gated feed-forward network in Hugging Face's layout."""
    for name in ("gate", "up"):
        yield f"{prefix}.{name}_proj.weight", (size, hidden)
    yield f"{prefix}.down_proj.weight", (hidden, size)


def gguf_mlp(kind: str, size: int, hidden: int) -> Sizes:
    """Yield a gated feed-forward network of a GGUF file; `kind` is the end of its names."""
    for name in ("gate", "up"):
        yield f"ffn_{name}{kind}.weight", (size, hidden)
    yield f"ffn_down{kind}.weight", (hidden, size)


def gguf_experts(experts: int, size: int, hidden: int) -> Sizes:
    """Yield the stacked experts of a GGUF file."""
    for name in ("gate", "up"):
        yield f"ffn_{name}_exps.weight", (experts, size, hidden)
    yield "ffn_down_exps.weight", (experts, hidden, size)
