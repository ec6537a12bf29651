"""Architectures with GPT's names: most have one projection for queries, keys and values, and an MLP without gate."""

from __future__ import annotations

from collections.abc import Mapping

from core_plugin_gguf.architecture import Architecture
from core_plugin_gguf.reads import falcon, flag, mpt, present

_GPT2 = {
    "attn_norm": "ln_1",
    "attn_qkv": "attn.c_attn",
    "attn_output": "attn.c_proj",
    "ffn_norm": "ln_2",
    "ffn_up": "mlp.c_fc",
    "ffn_down": "mlp.c_proj",
}
_TRANSFORMER = {
    "token_embd": "transformer.wte",
    "position_embd": "transformer.wpe",
    "output_norm": "transformer.ln_f",
    "output": "lm_head",
}
_SIZES = {
    "hidden_size": "n_embd",
    "intermediate_size": "n_inner",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "max_position_embeddings": "n_positions",
}
_DENSE = {
    "attn_norm": "input_layernorm",
    "attn_qkv": "self_attention.query_key_value",
    "attn_output": "self_attention.dense",
    "ffn_norm": "post_attention_layernorm",
    "ffn_up": "mlp.dense_h_to_4h",
    "ffn_down": "mlp.dense_4h_to_h",
}

GPT_KIN: Mapping[str, Architecture] = {
    "gpt2": Architecture(
        model="GPT2LMHeadModel",
        model_type="gpt2",
        blocks=_GPT2,
        modules=_TRANSFORMER,
        layer="transformer.h.{}",
        layer_norm=True,
        eps="layer_norm_epsilon",
        keys=_SIZES,
        values={"activation_function": "gelu_new"},
        rotates=False,
        turned=frozenset({"attn_qkv", "attn_output", "ffn_up", "ffn_down"}),
    ),
    "starcoder": Architecture(
        model="GPTBigCodeForCausalLM",
        model_type="gpt_bigcode",
        blocks=_GPT2,
        modules=_TRANSFORMER,
        layer="transformer.h.{}",
        layer_norm=True,
        eps="layer_norm_epsilon",
        keys=_SIZES,
        values={"activation_function": "gelu_pytorch_tanh", "multi_query": True},
        rotates=False,
    ),
    "gptneox": Architecture(
        model="GPTNeoXForCausalLM",
        model_type="gpt_neox",
        blocks={
            **_DENSE,
            "attn_qkv": "attention.query_key_value",
            "attn_output": "attention.dense",
        },
        modules={
            "token_embd": "gpt_neox.embed_in",
            "output_norm": "gpt_neox.final_layer_norm",
            "output": "embed_out",
        },
        layer="gpt_neox.layers.{}",
        layer_norm=True,
        eps="layer_norm_eps",
        keys={"rope_theta": "rotary_emb_base"},
        values={"hidden_act": "gelu"},
        reads=(
            flag("use_parallel_residual", "use_parallel_residual", default=True),
            present("attn_qkv.bias", "attention_bias"),
        ),
        partial="rotary_pct",
        by_turns="attn_qkv",
    ),
    "gptj": Architecture(
        model="GPTJForCausalLM",
        model_type="gptj",
        blocks={
            "attn_norm": "ln_1",
            "attn_q": "attn.q_proj",
            "attn_k": "attn.k_proj",
            "attn_v": "attn.v_proj",
            "attn_output": "attn.out_proj",
            "ffn_up": "mlp.fc_in",
            "ffn_down": "mlp.fc_out",
        },
        modules=_TRANSFORMER,
        layer="transformer.h.{}",
        layer_norm=True,
        eps="layer_norm_epsilon",
        keys=_SIZES,
        values={"activation_function": "gelu_new"},
        partial="rotary_dim",
    ),
    "bloom": Architecture(
        model="BloomForCausalLM",
        model_type="bloom",
        blocks=_DENSE,
        modules={
            "token_embd": "transformer.word_embeddings",
            "token_embd_norm": "transformer.word_embeddings_layernorm",
            "output_norm": "transformer.ln_f",
            "output": "lm_head",
        },
        layer="transformer.h.{}",
        layer_norm=True,
        eps="layer_norm_epsilon",
        keys={"num_hidden_layers": "n_layer", "num_attention_heads": "n_head", "max_position_embeddings": "seq_length"},
        rotates=False,
        by_turns="attn_qkv",
    ),
    "falcon": Architecture(
        model="FalconForCausalLM",
        model_type="falcon",
        blocks={name: module for name, module in _DENSE.items() if name != "ffn_norm"},
        variants={"attn_norm_2": {"attn_norm": "ln_mlp", "attn_norm_2": "ln_attn"}},
        modules={
            "token_embd": "transformer.word_embeddings",
            "output_norm": "transformer.ln_f",
            "output": "lm_head",
        },
        layer="transformer.h.{}",
        layer_norm=True,
        eps="layer_norm_epsilon",
        keys={"num_key_value_heads": "num_kv_heads", "intermediate_size": "ffn_hidden_size"},
        values={"activation": "gelu", "alibi": False, "parallel_attn": True},
        reads=(falcon, present("attn_qkv.bias", "bias")),
        by_turns="attn_qkv",
    ),
    "mpt": Architecture(
        model="MptForCausalLM",
        model_type="mpt",
        blocks={
            "attn_norm": "norm_1",
            "attn_qkv": "attn.Wqkv",
            "attn_q_norm": "attn.q_ln",
            "attn_k_norm": "attn.k_ln",
            "attn_output": "attn.out_proj",
            "ffn_norm": "norm_2",
            "ffn_up": "ffn.up_proj",
            "ffn_down": "ffn.down_proj",
        },
        modules={
            "token_embd": "transformer.wte",
            "position_embd": "transformer.wpe",
            "output_norm": "transformer.norm_f",
            "output": "lm_head",
        },
        layer="transformer.blocks.{}",
        layer_norm=True,
        eps="layer_norm_epsilon",
        keys={
            "hidden_size": "d_model",
            "num_hidden_layers": "n_layers",
            "num_attention_heads": "n_heads",
            "max_position_embeddings": "max_seq_len",
        },
        rotates=False,
        reads=(mpt,),
    ),
}
