"""Models without experts: Llama 3.2, Qwen3 and Gemma 3, whole, with their own vocabularies.

Factors that stretch rotary positions are left out: a step computes the same without them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.compare.shapes.base import Shape, Sizes, Span, gguf_mlp, mlp, norms


@dataclass(frozen=True)
class Dense:
    """The sizes of a model.

    Attributes:
        head_norms: Whether queries and keys are normalized.
        post_norms: Whether what attention and the feed-forward network return is normalized, too.
        window: Tokens that five of six layers see; 0: all layers see all.
    """

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    size: int
    head_norms: bool = False
    post_norms: bool = False
    window: int = 0

    @property
    def _rows(self) -> tuple[tuple[str, int], ...]:
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        return ("q", q), ("k", kv), ("v", kv)

    def layer(self, number: int) -> Sizes:
        """Yield the tensors of a layer in Hugging Face's layout."""
        for name, rows in self._rows:
            yield f"self_attn.{name}_proj.weight", (rows, self.hidden)
        yield "self_attn.o_proj.weight", (self.hidden, self._rows[0][1])
        for name in ("q", "k") if self.head_norms else ():
            yield f"self_attn.{name}_norm.weight", (self.head_dim,)
        for name, width in norms(self.hidden):
            yield f"{name}.weight", (width,)
        for name in ("pre", "post") if self.post_norms else ():
            yield f"{name}_feedforward_layernorm.weight", (self.hidden,)
        yield from mlp("mlp", self.size, self.hidden)

    def gguf(self, number: int) -> Sizes:
        """Yield the tensors of a layer of a GGUF file."""
        for name, rows in self._rows:
            yield f"attn_{name}.weight", (rows, self.hidden)
        yield "attn_output.weight", (self.hidden, self._rows[0][1])
        for name in ("q", "k") if self.head_norms else ():
            yield f"attn_{name}_norm.weight", (self.head_dim,)
        more = ("post_attention_norm", "post_ffw_norm") if self.post_norms else ()
        for name in ("attn_norm", "ffn_norm", *more):
            yield f"{name}.weight", (self.hidden,)
        yield from gguf_mlp("", self.size, self.hidden)

    @property
    def spans(self) -> tuple[Span, ...]:
        """What each layer attends to."""
        values, products = 2 * self.kv_heads * self.head_dim, 2 * self.heads * self.head_dim
        near = [self.window if number % 6 != 5 else 0 for number in range(self.layers)]
        return tuple(Span(values, products, window) for window in near)

    def shape(
        self, title: str, arch: str, base: float, config: Mapping[str, Any], metadata: Mapping[str, Any], **more: Any
    ) -> Shape:
        """Return the shape; `base` is that of the rotary positions."""
        own = {
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "intermediate_size": self.size,
            "rope_theta": base,
            "attention_bias": False,
        }
        told = {
            "attention.head_count": self.heads,
            "attention.head_count_kv": self.kv_heads,
            "attention.key_length": self.head_dim,
            "attention.value_length": self.head_dim,
            "rope.dimension_count": self.head_dim,
            "rope.freq_base": base,
            "feed_forward_length": self.size,
        }
        sizes = {"hidden": self.hidden, "layers": self.layers, "spans": self.spans}
        return Shape(title, {**own, **config}, self.layer, arch, {**told, **metadata}, self.gguf, **sizes, **more)


def _llama(title: str, sizes: Dense) -> Shape:
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "mlp_bias": False}
    return sizes.shape(title, "llama", 5e5, config, {}, vocabulary=128_256, tied=True)


def _qwen3(title: str, sizes: Dense, *, tied: bool) -> Shape:
    config = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3"}
    return sizes.shape(title, "qwen3", 1e6, config, {}, vocabulary=151_936, tied=tied)


def _gemma3(title: str, sizes: Dense) -> Shape:
    config = {
        "architectures": ["Gemma3ForCausalLM"],
        "model_type": "gemma3_text",
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": sizes.head_dim,
        "rope_local_base_freq": 10_000.0,
        "sliding_window": sizes.window,
        "sliding_window_pattern": 6,
    }
    metadata = {"attention.sliding_window": sizes.window}
    return sizes.shape(title, "gemma3", 1e6, config, metadata, vocabulary=262_144, tied=True)


QWEN3_8B = _qwen3("Qwen3-8B", Dense(4096, 36, 32, 8, 128, 12_288, head_norms=True), tied=False)

DENSE: Mapping[str, Shape] = {
    "llama-3.2-1b": _llama("Llama-3.2-1B", Dense(2048, 16, 32, 8, 64, 8192)),
    "llama-3.2-3b": _llama("Llama-3.2-3B", Dense(3072, 28, 24, 8, 128, 8192)),
    "qwen3-4b": _qwen3("Qwen3-4B", Dense(2560, 36, 32, 8, 128, 9728, head_norms=True), tied=True),
    "qwen3-8b": QWEN3_8B,
    "qwen3-8b-12l": QWEN3_8B.cut(12),
    "gemma-3-1b": _gemma3("Gemma-3-1B", Dense(1152, 26, 4, 1, 256, 6912, head_norms=True, post_norms=True, window=512)),
}
