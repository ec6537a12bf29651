"""Nemotron-NAS and DeciLM in torch, after the published formula; parameters have the names of their checkpoints."""

from __future__ import annotations

from torch import nn

from core_testing.reference_decoder import Reference, ReferenceDecoder, sizes_of


def blocks(config):
    """Return what each layer is made of."""
    if heads := config.get("num_key_value_heads_per_layer"):
        return [{"attention": {"num_key_value_heads": one}, "ffn": {}} for one in heads]
    return config["block_configs"]


def width(config, ffn):
    if ffn.get("ffn_mult"):
        return -(-int(2 * ffn["ffn_mult"] * config["hidden_size"] / 3) // 256) * 256
    return ffn.get("intermediate_size", config["intermediate_size"])


class Layer(nn.Module):
    def __init__(self, config, block):
        super().__init__()
        attention, ffn, hidden = block["attention"], block["ffn"], config["hidden_size"]
        shared = attention.get("num_key_value_heads")
        if shared is None and attention.get("n_heads_in_group"):
            shared = config["num_attention_heads"] // attention["n_heads_in_group"]
        bias = config.get("attention_bias", False)
        sizes = sizes_of(config) | {"kv_heads": shared or 1, "inner": width(config, ffn), "layers": 1}
        mlp_bias = config.get("mlp_bias", False)
        reference = Reference(**sizes, qkv_bias=bias, output_bias=bias, mlp_bias=mlp_bias, down_bias=mlp_bias)
        whole = ReferenceDecoder(reference).model.layers[0]
        if not attention.get("no_op"):
            self.input_layernorm, self.self_attn = whole.input_layernorm, whole.self_attn
            if attention.get("replace_with_linear"):
                self.self_attn = nn.Module()
                self.self_attn.linear_attn = nn.Linear(hidden, hidden, bias=False)
        if not ffn.get("no_op"):
            self.post_attention_layernorm, self.mlp = whole.post_attention_layernorm, whole.mlp
            if ffn.get("replace_with_linear"):
                self.mlp = nn.Module()
                self.mlp.linear_mlp = nn.Linear(hidden, hidden, bias=False)

    def forward(self, x):
        if hasattr(self, "self_attn"):
            x = x + getattr(self.self_attn, "linear_attn", self.self_attn)(self.input_layernorm(x))
        if hasattr(self, "mlp"):
            x = x + getattr(self.mlp, "linear_mlp", self.mlp)(self.post_attention_layernorm(x))
        return x


def reference(config):
    """Return the decoder of a configuration."""
    decoder = ReferenceDecoder(Reference(**sizes_of(config), tied=config.get("tie_word_embeddings", False)))
    decoder.model.layers = nn.ModuleList(Layer(config, block) for block in blocks(config))
    return decoder
