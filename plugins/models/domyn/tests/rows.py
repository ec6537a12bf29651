"""Tiny checkpoints of this family, and the published formula in torch."""

from __future__ import annotations

from functools import partial

from torch import nn
from torch.nn import functional

from core_testing.families import TinyFamily
from core_testing.reference_decoder import Reference, ReferenceDecoder, sizes_of

ACTIVATIONS = {None: functional.silu, "gelu_pytorch_tanh": partial(functional.gelu, approximate="tanh")}


class Sandwiched(nn.Module):
    """A layer with norms before and behind; queries are normalised without a weight."""

    def __init__(self, layer, given, activation):
        super().__init__()
        self.activation = activation
        self.attention, self.feedforward = layer.self_attn, layer.mlp
        self.attention.q_norm = nn.RMSNorm(given.head_dim, eps=given.eps, elementwise_affine=False)
        for name in ("pre_attention", "post_attention", "pre_feedforward", "post_feedforward"):
            setattr(self, f"{name}_norm", nn.RMSNorm(given.hidden, eps=given.eps))

    def forward(self, x):
        x = x + self.post_attention_norm(self.attention(self.pre_attention_norm(x)))
        return x + self.post_feedforward_norm(self.fed(self.pre_feedforward_norm(x)))

    def fed(self, x):
        linears = self.feedforward
        return linears.down_proj(self.activation(linears.gate_proj(x)) * linears.up_proj(x))


def reference(config):
    """Return the published formula: a layer's heads, window and rotation are its own."""
    count, tied = config["num_hidden_layers"], config.get("tie_word_embeddings", True)
    own = config.get("per_layer_config", {})
    sizes = config.get("head_sizes") or [
        own.get(str(index), {}).get("head_dim", config.get("head_dim")) for index in range(count)
    ]
    usual = sizes_of(config) | {"theta": config["rope_parameters"]["rope_theta"], "head_norm": True, "tied": tied}
    decoder, layers = ReferenceDecoder(Reference(**usual)), []
    activation = ACTIVATIONS[config.get("hidden_act")]
    for index, (size, kind, window) in enumerate(
        zip(sizes, config["position_layers"], config["window_sizes"], strict=True)
    ):
        changes = {"head_dim": size, "theta": usual["theta"] if kind == "rope" else None}
        windows = [None if window[0] == -1 else window[0] + 1] * count
        given = Reference(**{**usual, **changes, "windows": windows})
        layers.append(Sandwiched(ReferenceDecoder(given).model.layers[index], given, activation))
    decoder.model.layers = nn.ModuleList(layers)
    return decoder


_EDGE = {
    "model_type": "domynedge",
    "num_hidden_layers": 4,
    "position_layers": ["nope", "rope", "rope", "nope"],
    "window_sizes": [[-1, 0], [5, 0], [5, 0], [-1, 0]],
    "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0},
}

ROWS = [
    TinyFamily(
        "domyn_edge",
        "DomynEdgeForCausalLM",
        {**_EDGE, "head_dim": 12, "per_layer_config": {"0": {"head_dim": 20}, "3": {"head_dim": 20}}},
        reference=reference,
        native={"head_dim": 32, "per_layer_config": {"0": {"head_dim": 64}, "3": {"head_dim": 64}}},
        spread=0.2,
    ),
    TinyFamily(
        "domyn_edge_lists",
        "DomynEdgeForCausalLM",
        {
            **_EDGE,
            "head_sizes": [20, 12, 12, 28],
            "position_layers": ["rope", "nope", "rope", "nope"],
            "window_sizes": [[9, 0], [-1, 0], [-1, 0], [1, 0]],
            "tie_word_embeddings": False,
            "hidden_act": "gelu_pytorch_tanh",
            "rms_norm_eps": 1e-5,
            "num_attention_heads": 6,
            "num_key_value_heads": 3,
        },
        reference=reference,
        native={"head_sizes": [64, 32, 32, 16]},
        spread=0.2,
    ),
]
