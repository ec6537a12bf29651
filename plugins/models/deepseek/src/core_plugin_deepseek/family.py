"""DeepSeek V2, V3 and V3.2, and what was made after them: latent attention, experts behind some dense layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core_plugin_decoder import CausalLM, Decoder, Fields, shape_of

from core.api import MOST_LAYERS, Routing
from core_plugin_deepseek.index import indexed
from core_plugin_deepseek.parts import decoder_of, mixture

_SECOND: Mapping[str, Any] = {
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "n_routed_experts": 64,
    "n_shared_experts": 2,
    "moe_intermediate_size": 1407,
    "first_k_dense_replace": 0,
    "num_nextn_predict_layers": 0,
    "routed_scaling_factor": 1.0,
    "norm_topk_prob": False,
}
_THIRD: Mapping[str, Any] = {
    **_SECOND,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "moe_intermediate_size": 2048,
    "first_k_dense_replace": 3,
    "num_nextn_predict_layers": 1,
    "routed_scaling_factor": 2.5,
    "norm_topk_prob": True,
    "num_experts_per_tok": 8,
    "n_group": 8,
    "topk_group": 4,
}
_LITE: Mapping[str, Any] = {
    **_THIRD,
    "q_lora_rank": 768,
    "qk_nope_head_dim": 192,
    "v_head_dim": 256,
    "n_routed_experts": 64,
    "moe_intermediate_size": 1536,
    "first_k_dense_replace": 1,
    "routed_scaling_factor": 1.8,
    "num_experts_per_tok": 4,
    "n_group": 1,
    "topk_group": 1,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 202752,
}
_INDEXED: Mapping[str, Any] = {**_THIRD, "index_topk": 2048, "index_head_dim": 128, "index_n_heads": 64}
_FIFTH: Mapping[str, Any] = {
    **_INDEXED,
    "index_n_heads": 32,
    "indexer_rope_interleave": True,
    "q_lora_rank": 2048,
    "qk_nope_head_dim": 192,
    "v_head_dim": 256,
    "n_group": 1,
    "topk_group": 1,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 202752,
}
_USUAL: Mapping[str, Mapping[str, Any]] = {
    "DeepseekV2": _SECOND,
    "DeepseekV32": _INDEXED,
    "Glm4MoeLite": _LITE,
    "GlmMoeDsa": _FIFTH,
}
"""Defaults of transformers for keys that a configuration lacks, by how an architecture begins; else `_THIRD`."""


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration."""
    name = Fields(config, "DeepseekV3ForCausalLM").architecture
    second = name.startswith("DeepseekV2")
    usual = next((values for start, values in _USUAL.items() if name.startswith(start)), _THIRD)
    given = Fields({**usual, **config}, "DeepseekV3ForCausalLM")
    # The second version rotates neighbours, whatever its configuration says.
    interleaved = second or given.flag("rope_interleave", default=True)
    attention = given.latent(usual, interleaved=interleaved)
    layers = indexed(given, attention) if "index_topk" in usual else (attention,) * given.layers()
    experts = mixture(given, _routing_by_softmax(given) if second else _routing_by_sigmoid(given))
    return decoder_of(given, layers, experts, attention.rope.context, skips=_further_tokens(given))


shape = shape_of(read)


class DeepSeek(CausalLM):
    """The architectures."""

    describe = staticmethod(read)


def _routing_by_softmax(given: Fields) -> Routing:
    given.expect("scoring_func", "softmax")
    given.expect("topk_method", "greedy", "group_limited_greedy")
    # Its makers then leave the factor out, others do not: no checkpoint has it set.
    given.expect("norm_topk_prob", False)
    grouped = given.text("topk_method", "greedy") != "greedy"
    return Routing(
        top_k=given.integer("num_experts_per_tok"),
        factor=given.number("routed_scaling_factor", 1.0),
        groups=given.integer("n_group", 1) if grouped else 1,
        top_groups=given.integer("topk_group", 1) if grouped else 1,
    )


def _routing_by_sigmoid(given: Fields) -> Routing:
    given.expect("scoring_func", "sigmoid")
    given.expect("topk_method", "noaux_tc")
    return Routing(
        top_k=given.integer("num_experts_per_tok"),
        score="sigmoid",
        correction=True,
        groups=given.integer("n_group"),
        top_groups=given.integer("topk_group"),
        group_by="top2",
        renormalize=given.flag("norm_topk_prob"),
        eps=1e-20,
        factor=given.number("routed_scaling_factor", 1.0),
    )


def _further_tokens(given: Fields) -> tuple[str, ...]:
    """Return the layers behind the last one, which predict further tokens: they are left out."""
    count = int(given.number("num_nextn_predict_layers", 0, least=0, most=MOST_LAYERS))
    return tuple(f"model.layers.{given.layers() + index}.*" for index in range(count))
