"""Which architectures can be read, and by what name users know the others."""

from __future__ import annotations

from collections.abc import Mapping

from core_plugin_gguf.architecture import Architecture
from core_plugin_gguf.kin_encoders import ENCODERS
from core_plugin_gguf.kin_experts import EXPERTS_KIN
from core_plugin_gguf.kin_gpt import GPT_KIN
from core_plugin_gguf.kin_llama import LLAMA_KIN
from core_plugin_gguf.kin_norms import NORMS_KIN

ARCHITECTURES: Mapping[str, Architecture] = {**LLAMA_KIN, **NORMS_KIN, **GPT_KIN, **EXPERTS_KIN, **ENCODERS}
"""By GGUF's name."""

KNOWN_ARCHITECTURES: Mapping[str, str] = {
    "arctic": "ArcticForCausalLM",
    "bitnet": "BitNetForCausalLM",
    "codeshell": "CodeShellForCausalLM",
    "dbrx": "DbrxForCausalLM",
    "deci": "DeciLMForCausalLM",
    "deepseek": "DeepseekForCausalLM",
    "deepseek2": "DeepseekV2ForCausalLM",
    "dots1": "Dots1ForCausalLM",
    "ernie4_5-moe": "Ernie4_5_MoeForCausalLM",
    "falcon-h1": "FalconH1ForCausalLM",
    "gemma-embedding": "Gemma3TextModel",
    "gemma3n": "Gemma3nForCausalLM",
    "glm4moe": "Glm4MoeForCausalLM",
    "gpt-oss": "GptOssForCausalLM",
    "granitehybrid": "GraniteMoeHybridForCausalLM",
    "granitemoe": "GraniteMoeForCausalLM",
    "hunyuan-moe": "HunYuanMoEV1ForCausalLM",
    "jamba": "JambaForCausalLM",
    "lfm2": "Lfm2ForCausalLM",
    "lfm2moe": "Lfm2MoeForCausalLM",
    "llama4": "Llama4ForCausalLM",
    "mamba": "MambaForCausalLM",
    "mamba2": "Mamba2ForCausalLM",
    "minicpm3": "MiniCPM3ForCausalLM",
    "minimax-m2": "MiniMaxM2ForCausalLM",
    "modern-bert": "ModernBertModel",
    "nemotron_h": "NemotronHForCausalLM",
    "nomic-bert": "NomicBertModel",
    "olmoe": "OlmoeForCausalLM",
    "openelm": "OpenELMForCausalLM",
    "phimoe": "PhimoeForCausalLM",
    "plamo": "PlamoForCausalLM",
    "plm": "PLMForCausalLM",
    "qwen2vl": "Qwen2VLForConditionalGeneration",
    "qwen3next": "Qwen3NextForCausalLM",
    "qwen3vl": "Qwen3VLForConditionalGeneration",
    "refact": "GPTRefactForCausalLM",
    "rwkv6": "Rwkv6ForCausalLM",
    "rwkv7": "RWKV7ForCausalLM",
    "t5": "T5ForConditionalGeneration",
}
"""Further architectures, so that an error can name the model by the name its users know."""
