"""Encoders with BERT's names, RoBERTa's among them: converters cut the unused first rows of their positions off."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from core_plugin_gguf.architecture import Architecture
from core_plugin_gguf.faults import damaged

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
}
