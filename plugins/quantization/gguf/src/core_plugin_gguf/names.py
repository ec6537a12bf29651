"""GGUF's names of architectures and tensors in Hugging Face's vocabulary."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "gemma2": "Gemma2ForCausalLM",
    "gemma3": "Gemma3ForCausalLM",
}
"""Architectures whose configuration and tensors can be translated."""

GEMMA = frozenset({"gemma2", "gemma3"})

KNOWN_ARCHITECTURES = {
    "bert": "BertModel",
    "command-r": "CohereForCausalLM",
    "deepseek2": "DeepseekV2ForCausalLM",
    "falcon": "FalconForCausalLM",
    "gemma": "GemmaForCausalLM",
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
_GEMMA_MODULES = {
    **_BLOCK_MODULES,
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
_BLOCK = re.compile(r"blk\.(\d+)\.(.+)")


@dataclass(frozen=True, slots=True)
class Conventions:
    """How an architecture's converter names and stores tensors.

    Attributes:
        blocks: Module in a block -> Hugging Face's name of it in a layer.
        heads: Projections whose rows are stored interleaved -> their heads.
        norm_offset: What was added to the weights of norms.
    """

    blocks: Mapping[str, str]
    heads: Mapping[str, int]
    norm_offset: float

    @staticmethod
    def of(arch: str, heads: Mapping[str, int] = MappingProxyType({})) -> Conventions:
        """Return those of a GGUF architecture."""
        gemma = arch in GEMMA
        return Conventions(_GEMMA_MODULES if gemma else _BLOCK_MODULES, heads, norm_offset=1.0 if gemma else 0.0)

    def name(self, name: str) -> str:
        """Translate a tensor's name; one without a translation is returned as it is, for the loader to refuse."""
        module, _, kind = name.rpartition(".")
        if module in _MODULES:
            return f"{_MODULES[module]}.{kind}"
        match = _BLOCK.fullmatch(module)
        if match is None or match[2] not in self.blocks:
            return name
        return f"model.layers.{match[1]}.{self.blocks[match[2]]}.{kind}"

    def heads_of(self, name: str) -> int:
        """Return how many heads of a tensor's rows are interleaved; 0 if they are in plain order."""
        return next((number for module, number in self.heads.items() if f".{module}." in name), 0)

    def offset_of(self, name: str) -> float:
        """Return what was added to a tensor's values."""
        return self.norm_offset if name.endswith("norm.weight") else 0.0
