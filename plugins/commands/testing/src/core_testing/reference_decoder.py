"""A decoder in plain torch, from published formulas: families without a class in transformers are held against it.

It computes one text at a time, in float32 and without a cache. Its tensors have Llama's names; `renamed` turns these
into what a family's checkpoints call them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True, kw_only=True)
class Reference:
    """Description of a reference decoder.

    Attributes:
        qkv: How queries, keys and values are projected: `split`, one linear each; `joined`, one for all (`qkv_proj`);
            `turns`, one for all, in which each group of queries is followed by its key and its value; `keyed`, one for
            the queries and one for keys and values by turns (`kv_proj`).
        qkv_bias, output_bias, mlp_bias, down_bias: Which linears have a bias.
        norm: Kind of all norms.
        head_norm: Whether queries and keys are normalised head by head.
        theta: Base of the rotation; None: nothing is rotated.
        divisors: Of the frequencies, one for each pair of dimensions.
        stretch: Factor of the rotated queries and keys.
        slopes: ALiBi, one for each head.
        windows: For each layer, how many tokens a query sees; None: all.
        embed_scale, layer_scale, logit_scale: Factors of the embedding, of what layers add, of the logits.
        unit_rows: The rows of the output projection have length 1.
        final: Size of a linear layer behind the last norm, instead of the output projection.
    """

    vocab: int
    hidden: int
    inner: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    eps: float = 1e-6
    qkv: Literal["split", "joined", "turns", "keyed"] = "split"
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    down_bias: bool = False
    norm: Literal["rms", "layer"] = "rms"
    head_norm: bool = False
    theta: float | None = 10000.0
    divisors: Sequence[float] | None = None
    stretch: float = 1.0
    slopes: Sequence[float] | None = None
    windows: Sequence[int | None] | None = None
    causal: bool = True
    embed_scale: float = 1.0
    layer_scale: float = 1.0
    logit_scale: float = 1.0
    tied: bool = False
    unit_rows: bool = False
    final: int | None = None


def renamed(*pairs: tuple[str, str]) -> Callable[[str, Any], list[tuple[str, Any]]]:
    """Return a `TinyFamily.save` that replaces each first text by the second, in order."""

    def save(name: str, tensor: Any) -> list[tuple[str, Any]]:
        for old, new in pairs:
            name = name.replace(old, new)
        return [(name, tensor)]

    return save


def _norm(given: Reference, size: int) -> nn.Module:
    return (nn.RMSNorm if given.norm == "rms" else nn.LayerNorm)(size, eps=given.eps)


class _Attention(nn.Module):
    k_proj: nn.Linear
    v_proj: nn.Linear
    kv_proj: nn.Linear

    def __init__(self, given: Reference, window: int | None) -> None:
        super().__init__()
        self.given, self.window = given, window
        queries, keys, bias = given.heads * given.head_dim, given.kv_heads * given.head_dim, given.qkv_bias
        if given.qkv in ("joined", "turns"):
            self.qkv_proj = nn.Linear(given.hidden, queries + 2 * keys, bias=bias)
        else:
            self.q_proj = nn.Linear(given.hidden, queries, bias=bias)
            names = {"kv_proj": 2 * keys} if given.qkv == "keyed" else {"k_proj": keys, "v_proj": keys}
            for name, size in names.items():
                setattr(self, name, nn.Linear(given.hidden, size, bias=bias))
        self.o_proj = nn.Linear(queries, given.hidden, bias=given.output_bias)
        if given.head_norm:
            self.q_norm, self.k_norm = (nn.RMSNorm(given.head_dim, eps=given.eps) for _ in range(2))

    def projected(self, x: Tensor) -> list[Tensor]:
        """Return queries, keys and values, `(tokens, heads, head_dim)`."""
        given, size = self.given, self.given.head_dim
        if given.qkv == "split":
            return [one(x).unflatten(-1, (-1, size)) for one in (self.q_proj, self.k_proj, self.v_proj)]
        if given.qkv == "joined":
            both = self.qkv_proj(x).unflatten(-1, (-1, size))
            return list(both.split([given.heads, given.kv_heads, given.kv_heads], dim=-2))
        if given.qkv == "turns":
            turns = self.qkv_proj(x).unflatten(-1, (given.kv_heads, -1, size))
            return [turns[:, :, :-2].flatten(1, 2), turns[:, :, -2], turns[:, :, -1]]
        turns = self.kv_proj(x).unflatten(-1, (given.kv_heads, 2, size))
        return [self.q_proj(x).unflatten(-1, (-1, size)), turns[:, :, 0], turns[:, :, 1]]

    def rotated(self, x: Tensor) -> Tensor:
        given, half = self.given, self.given.head_dim // 2
        if given.theta is None:
            return x
        frequencies = given.theta ** (-torch.arange(half, dtype=torch.float32) / half)
        if given.divisors is not None:
            frequencies = frequencies / torch.tensor(given.divisors)
        angles = torch.outer(torch.arange(len(x), dtype=torch.float32), frequencies)[:, None]
        sine, cosine = angles.sin() * given.stretch, angles.cos() * given.stretch
        first, second = x.chunk(2, dim=-1)
        return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)

    def forward(self, x: Tensor) -> Tensor:
        given, count = self.given, len(x)
        q, k, v = self.projected(x)
        if given.head_norm:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k = self.rotated(q), self.rotated(k)
        k, v = (one.repeat_interleave(given.heads // given.kv_heads, dim=1) for one in (k, v))
        scores = torch.einsum("qhd,khd->hqk", q, k) * given.head_dim**-0.5
        places = torch.arange(count)
        distance = places[None, :] - places[:, None]  # of the key from the query
        if given.slopes is not None:
            scores = scores + torch.tensor(given.slopes)[:, None, None] * distance
        if given.causal:
            scores = scores.masked_fill(distance > 0, -torch.inf)
        if self.window is not None:
            scores = scores.masked_fill(distance <= -self.window, -torch.inf)
        out: Tensor = self.o_proj(torch.einsum("hqk,khd->qhd", scores.softmax(-1), v).flatten(1))
        return out


class _MLP(nn.Module):
    def __init__(self, given: Reference) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(given.hidden, given.inner, bias=given.mlp_bias)
        self.up_proj = nn.Linear(given.hidden, given.inner, bias=given.mlp_bias)
        self.down_proj = nn.Linear(given.inner, given.hidden, bias=given.down_bias)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class _Layer(nn.Module):
    def __init__(self, given: Reference, window: int | None = None) -> None:
        super().__init__()
        self.scale = given.layer_scale
        self.self_attn, self.mlp = _Attention(given, window), _MLP(given)
        self.input_layernorm = _norm(given, given.hidden)
        self.post_attention_layernorm = _norm(given, given.hidden)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.scale * self.self_attn(self.input_layernorm(x))
        out: Tensor = x + self.scale * self.mlp(self.post_attention_layernorm(x))
        return out


class _Body(nn.Module):
    def __init__(self, given: Reference) -> None:
        super().__init__()
        self.scale = given.embed_scale
        self.embed_tokens = nn.Embedding(given.vocab, given.hidden)
        windows = given.windows or (None,) * given.layers
        self.layers = nn.ModuleList(_Layer(given, window) for window in windows)
        self.norm = _norm(given, given.hidden)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed_tokens(tokens) * self.scale
        for layer in self.layers:
            x = layer(x)
        out: Tensor = self.norm(x)
        return out


class ReferenceDecoder(nn.Module):
    """`(1, tokens) int64 -> (1, tokens, vocab)`; hidden states where there is no output projection."""

    def __init__(self, given: Reference) -> None:
        super().__init__()
        self.given, self.model = given, _Body(given)
        if given.final is not None:
            self.linear = nn.Linear(given.hidden, given.final, bias=False)
        elif not given.tied:
            self.lm_head = nn.Linear(given.hidden, given.vocab, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Compute one text."""
        hidden: Tensor = self.model(tokens[0])
        if self.given.final is not None:
            out: Tensor = self.linear(hidden)
            return out[None]
        weight = self.model.embed_tokens.weight if self.given.tied else self.lm_head.weight
        if self.given.unit_rows:
            weight = functional.normalize(weight)
        return (hidden @ weight.T * self.given.logit_scale)[None]


def sizes_of(config: Any) -> dict[str, Any]:
    """Return the sizes of a configuration with Llama's keys, as arguments of `Reference`."""
    heads = config["num_attention_heads"]
    return {
        "vocab": config["vocab_size"],
        "hidden": config["hidden_size"],
        "inner": config["intermediate_size"],
        "layers": config["num_hidden_layers"],
        "heads": heads,
        "kv_heads": config.get("num_key_value_heads") or heads,
        "head_dim": config.get("head_dim") or config["hidden_size"] // heads,
        "eps": config.get("rms_norm_eps") or 1e-6,
        "theta": config.get("rope_theta") or 10000.0,
    }
