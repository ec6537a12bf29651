"""Tiny checkpoints of this family, and the published formula in torch."""

from __future__ import annotations

import torch
from torch import nn

from core_testing.families import TinyFamily
from core_testing.reference_decoder import Reference, ReferenceDecoder, sizes_of


class Gate(nn.Module):
    """A factor for each head, from its query."""

    def __init__(self, heads, head_dim):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.zeros(heads, head_dim)), nn.Parameter(torch.zeros(heads))

    def forward(self, q):
        return torch.sigmoid(torch.einsum("thd,hd->th", q, self.weight) + self.bias)[..., None]


class Looped(ReferenceDecoder):
    """The layers again and again: later passes also see the keys and values of the first."""

    def __init__(self, given, passes, window):
        super().__init__(given)
        self.passes, self.window = passes, window
        self.model.gate_projections = nn.ModuleList(Gate(given.heads, given.head_dim) for _ in range(given.layers))

    def forward(self, tokens):
        x, first = self.model.embed_tokens(tokens[0]), {}
        for turn in range(self.passes):
            for index, layer in enumerate(self.model.layers):
                attention = layer.self_attn
                q, k, v = attention.projected(layer.input_layernorm(x))
                q, k = attention.rotated(q), attention.rotated(k)
                if not turn:
                    first[index] = k, v
                    out = self.attended(q, k, v)
                else:
                    gate = self.model.gate_projections[index](q)
                    near, far = self.attended(q, k, v, self.window), self.attended(q, *first[index])
                    out = near * (1 - gate) + far * gate
                x = x + attention.o_proj(out.flatten(1))
                x = x + layer.mlp(layer.post_attention_layernorm(x))
        weight = self.model.embed_tokens.weight if self.given.tied else self.lm_head.weight
        return (self.model.norm(x) @ weight.T)[None]

    def attended(self, q, k, v, window=None):
        """Return causal attention, within a window if there is one."""
        groups, places = self.given.heads // self.given.kv_heads, torch.arange(len(q))
        k, v = (one.repeat_interleave(groups, dim=1) for one in (k, v))
        back = places[:, None] - places[None]
        hidden = (back < 0) if window is None else (back < 0) | (back >= window)
        scores = torch.einsum("qhd,khd->hqk", q, k) * self.given.head_dim**-0.5
        return torch.einsum("hqk,khd->qhd", scores.masked_fill(hidden, -torch.inf).softmax(-1), v)


def reference(config):
    """Return the published formula."""
    given = Reference(**sizes_of(config), tied=config.get("tie_word_embeddings", False))
    return Looped(given, config["loop_num"], config["loop_window_size"])


_LOOPS = {"model_type": "iquestloopcoder", "loop_window_size": 6, "rms_norm_eps": 1e-5, "rope_theta": 5000.0}

ROWS = [
    TinyFamily(
        "iquest_loop", "IQuestLoopCoderForCausalLM", {**_LOOPS, "loop_num": 2, "head_dim": 20}, reference=reference
    ),
    TinyFamily(
        "iquest_loops",
        "IQuestLoopCoderForCausalLM",
        {**_LOOPS, "loop_num": 3, "num_key_value_heads": 4, "tie_word_embeddings": True, "loop_window_size": 20},
        reference=reference,
    ),
]
