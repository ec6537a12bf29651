"""GGUF's names of architectures and tensors in Hugging Face's vocabulary."""

from __future__ import annotations

import re

ARCHITECTURES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}
"""Architectures whose configuration and tensors can be translated."""

KNOWN_ARCHITECTURES = {
    "bert": "BertModel",
    "command-r": "CohereForCausalLM",
    "deepseek2": "DeepseekV2ForCausalLM",
    "falcon": "FalconForCausalLM",
    "gemma": "GemmaForCausalLM",
    "gemma2": "Gemma2ForCausalLM",
    "gemma3": "Gemma3ForCausalLM",
    "glm4": "Glm4ForCausalLM",
    "gpt-oss": "GptOssForCausalLM",
    "gpt2": "GPT2LMHeadModel",
    "granite": "GraniteForCausalLM",
    "llama4": "Llama4ForCausalLM",
    "mamba": "MambaForCausalLM",
    "olmo2": "Olmo2ForCausalLM",
    "phi3": "Phi3ForCausalLM",
    "qwen2moe": "Qwen2MoeForCausalLM",
    "qwen3moe": "Qwen3MoeForCausalLM",
    "smollm3": "SmolLM3ForCausalLM",
    "starcoder2": "Starcoder2ForCausalLM",
}
"""Further architectures, so that an error can name the model by the name its users know."""

ROPE_FREQUENCIES = "rope_freqs.weight"
"""Llama 3's frequency divisors: read into the configuration, not a tensor of the model."""

_MODULES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_BLOCK_MODULES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_BLOCK = re.compile(r"blk\.(\d+)\.(.+)")


def hugging_face_name(name: str) -> str:
    """Translate a tensor's name; one without a translation is returned as it is, for the loader to refuse."""
    module, _, kind = name.rpartition(".")
    if module in _MODULES:
        return f"{_MODULES[module]}.{kind}"
    match = _BLOCK.fullmatch(module)
    if match is None or match[2] not in _BLOCK_MODULES:
        return name
    return f"model.layers.{match[1]}.{_BLOCK_MODULES[match[2]]}.{kind}"
