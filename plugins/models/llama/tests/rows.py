"""Tiny checkpoints of architectures that are spelled otherwise than Llama, or differ in one thing."""

from __future__ import annotations

from core_testing.families import TinyFamily
from core_testing.reference_decoder import Reference, ReferenceDecoder, renamed, sizes_of


def llama(config):
    """Return Llama's formula."""
    return ReferenceDecoder(Reference(**sizes_of(config), tied=config.get("tie_word_embeddings", False)))


def pangu(config):
    """Return Llama's formula with biases around the attention."""
    return ReferenceDecoder(Reference(**sizes_of(config), qkv_bias=True, output_bias=True))


def mimo(config):
    """Return Qwen2's formula."""
    return ReferenceDecoder(Reference(**sizes_of(config), qkv_bias=True))


def drafting(name, tensor):
    """Return a tensor; of one of them a copy besides, as MiMo's layers that draft have them."""
    if name == "model.norm.weight":
        return [(name, tensor), ("model.mtp_layers.0.final_layernorm.weight", tensor)]
    return [(name, tensor)]


_FAIRSEQ2 = renamed(
    ("input_layernorm", "self_attn_layer_norm"),
    ("post_attention_layernorm", "ffn_layer_norm"),
    ("o_proj", "output_proj"),
    ("mlp.up_proj", "ffn.inner_proj"),
    ("mlp.down_proj", "ffn.output_proj"),
    ("mlp.", "ffn."),
    ("model.embed_tokens", "decoder_frontend.embed"),
    ("model.norm", "decoder.layer_norm"),
    ("model.", "decoder."),
    ("lm_head", "final_proj"),
)


def fairseq2(name, tensor):
    """Return a tensor with fairseq2's name; dimensions of queries and keys that rotate together are neighbours."""
    if name.endswith(("q_proj.weight", "k_proj.weight")):
        heads = 4 if name.endswith("q_proj.weight") else 2
        tensor = tensor.unflatten(0, (heads, 2, -1)).transpose(1, 2).flatten(0, 2)
    return _FAIRSEQ2(name, tensor)


# In one layer: a tensor that is missing is called by its name in the model, and the suite takes one out of layer 1.
_OLD_YI = (("0.input_layernorm", "0.ln1"), ("0.post_attention_layernorm", "0.ln2"))
_WINDOWS = {"sliding_window": 6, "head_dim": 24, "model_type": "cwm", "bos_token_id": 1}


def spelled(architecture, reference=llama, save=None, **config):
    """Return the row of an architecture."""
    given = {"model_type": "llama", **config}
    return TinyFamily(architecture, architecture, given, reference=reference, save=save or renamed())


ROWS = [
    spelled("LLaMAForCausalLM"),
    spelled("YiForCausalLM", save=renamed(*_OLD_YI), tie_word_embeddings=True),
    spelled("AquilaForCausalLM", rms_norm_eps=1e-5),
    spelled("AquilaModel", num_key_value_heads=4),
    spelled("XverseForCausalLM", num_key_value_heads=None),
    spelled("IQuestCoderForCausalLM", head_dim=24, rms_norm_eps=1e-5),
    spelled("PanguEmbeddedForCausalLM", pangu, bias=True, rope_theta=16e6),
    spelled("MiMoForCausalLM", mimo, drafting, attention_bias=True, head_dim=24),
    spelled("Fairseq2LlamaForCausalLM", save=fairseq2, rope_theta=500000.0, rms_norm_eps=1e-5, head_dim=20),
    TinyFamily("cwm", "CwmForCausalLM", {**_WINDOWS, "num_hidden_layers": 2}, save=renamed()),
    TinyFamily(
        "cwm_layers",
        "CwmForCausalLM",
        {
            **_WINDOWS,
            "num_hidden_layers": 4,
            "layer_types": ["sliding_attention", "full_attention"] * 2,
            "mlp_bias": True,
        },
        save=renamed(),
    ),
]
