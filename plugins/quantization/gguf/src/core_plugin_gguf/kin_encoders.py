"""Encoders: BERT, with RoBERTa, whose unused first rows of positions converters cut off; its kin; EuroBERT."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from core_plugin_gguf.architecture import Architecture
from core_plugin_gguf.faults import damaged
from core_plugin_gguf.kin_llama import BLOCKS, MODEL
from core_plugin_gguf.reads import FULL, SLIDING, present

if TYPE_CHECKING:
    from core_plugin_gguf.architecture import Facts


def tables(facts: Facts) -> Mapping[str, Any]:
    """Rows of the embeddings of positions and of types. Raises `CheckpointError` CORE-M141: one is missing."""
    names = {"max_position_embeddings": "position_embd", "type_vocab_size": "token_types"}
    found = {}
    for key, module in names.items():
        tensor = facts.tensors.get(f"{module}.weight")
        if tensor is None:
            raise damaged(facts.header.path, f"tensor {module}.weight is missing")
        found[key] = tensor.shape[0]
    return found


def types(facts: Facts) -> Mapping[str, Any]:
    """Rows of the embedding of types. Raises `CheckpointError` CORE-M141: it is missing."""
    tensor = facts.tensors.get("token_types.weight")
    if tensor is None:
        raise damaged(facts.header.path, "tensor token_types.weight is missing")
    return {"type_vocab_size": tensor.shape[0]}


def modern(facts: Facts) -> Mapping[str, Any]:
    """ModernBERT: which layers see how far, and the rotary base of those that see near."""
    header, key, layers = facts.header, facts.key, facts.config["num_hidden_layers"]
    every = header.positive_integer(key("attention.sliding_window_pattern"), 3)
    return {
        "hidden_activation": header.text(key("hidden_activation"), "gelu"),
        "local_attention": header.positive_integer(key("attention.sliding_window")),
        "layer_types": [SLIDING if layer % every else FULL for layer in range(layers)],
        "global_rope_theta": facts.config["rope_theta"],
        "local_rope_theta": header.positive_number(key("rope.freq_base_swa"), 10000.0, least=1.0, most=1e12),
        "attention_bias": facts.has("attn_qkv.bias"),
        "mlp_bias": facts.has("ffn_up.bias"),
        "norm_bias": "output_norm.bias" in facts.tensors,
    }


ENCODERS: Mapping[str, Architecture] = {
    "bert": Architecture(
        model="BertModel",
        model_type="bert",
        blocks={
            "attn_q": "attention.self.query",
            "attn_k": "attention.self.key",
            "attn_v": "attention.self.value",
            "attn_output": "attention.output.dense",
            "attn_output_norm": "attention.output.LayerNorm",
            "ffn_up": "intermediate.dense",
            "ffn_down": "output.dense",
            "layer_output_norm": "output.LayerNorm",
        },
        modules={
            "token_embd": "embeddings.word_embeddings",
            "position_embd": "embeddings.position_embeddings",
            "token_types": "embeddings.token_type_embeddings",
            "token_embd_norm": "embeddings.LayerNorm",
        },
        layer="encoder.layer.{}",
        layer_norm=True,
        eps="layer_norm_eps",
        values={"hidden_act": "gelu"},
        reads=(tables,),
        rotates=False,
    ),
    "nomic-bert": Architecture(
        model="NomicBertModel",
        model_type="nomic_bert",
        blocks={
            "attn_qkv": "attn.Wqkv",
            "attn_output": "attn.out_proj",
            "attn_output_norm": "norm1",
            "ffn_up": "mlp.fc11",
            "ffn_gate": "mlp.fc12",
            "ffn_down": "mlp.fc2",
            "layer_output_norm": "norm2",
        },
        modules={
            "token_embd": "embeddings.word_embeddings",
            "token_types": "embeddings.token_type_embeddings",
            "token_embd_norm": "emb_ln",
        },
        layer="encoder.layers.{}",
        layer_norm=True,
        eps="layer_norm_eps",
        values={"hidden_act": "silu"},
        reads=(types,),
    ),
    "jina-bert-v3": Architecture(
        model="JinaEmbeddingsV3Model",
        model_type="jina_embeddings_v3",
        blocks={
            "attn_qkv": "mixer.Wqkv",
            "attn_output": "mixer.out_proj",
            "attn_output_norm": "norm1",
            "ffn_up": "mlp.fc1",
            "ffn_down": "mlp.fc2",
            "layer_output_norm": "norm2",
        },
        modules={
            "token_embd": "embeddings.word_embeddings",
            "token_types": "embeddings.token_type_embeddings",
            "token_embd_norm": "emb_ln",
        },
        layer="encoder.layers.{}",
        layer_norm=True,
        eps="layer_norm_eps",
        values={"hidden_act": "gelu"},
        reads=(types,),
    ),
    "modern-bert": Architecture(
        model="ModernBertModel",
        model_type="modernbert",
        blocks={
            "attn_qkv": "attn.Wqkv",
            "attn_output": "attn.Wo",
            "attn_norm": "attn_norm",
            "ffn_norm": "mlp_norm",
            "ffn_up": "mlp.Wi",
            "ffn_down": "mlp.Wo",
        },
        modules={
            "token_embd": "embeddings.tok_embeddings",
            "token_embd_norm": "embeddings.norm",
            "output_norm": "final_norm",
        },
        layer="layers.{}",
        layer_norm=True,
        eps="norm_eps",
        reads=(modern,),
        inner="",
    ),
    "eurobert": Architecture(
        model="EuroBertModel",
        model_type="eurobert",
        blocks=BLOCKS,
        modules=MODEL,
        values={"hidden_act": "silu"},
        reads=(present("attn_q.bias", "attention_bias"), present("ffn_up.bias", "mlp_bias")),
    ),
}
