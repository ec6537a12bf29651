"""Which architectures can be read, and by what name users know the others."""

from __future__ import annotations

from collections.abc import Mapping

from core_plugin_gguf.architecture import Architecture
from core_plugin_gguf.kin_encoders import ENCODERS
from core_plugin_gguf.kin_experts import EXPERTS_KIN
from core_plugin_gguf.kin_gpt import GPT_KIN
from core_plugin_gguf.kin_grouped import GROUPED_KIN
from core_plugin_gguf.kin_linear import LINEAR_KIN
from core_plugin_gguf.kin_llama import LLAMA_KIN
from core_plugin_gguf.kin_norms import NORMS_KIN
from core_plugin_gguf.kin_states import STATES_KIN

ARCHITECTURES: Mapping[str, Architecture] = {
    **LLAMA_KIN,
    **NORMS_KIN,
    **GPT_KIN,
    **EXPERTS_KIN,
    **GROUPED_KIN,
    **STATES_KIN,
    **LINEAR_KIN,
    **ENCODERS,
}
"""By GGUF's name."""

KNOWN_ARCHITECTURES: Mapping[str, str] = {
    "bitnet": "BitNetForCausalLM",
    "codeshell": "CodeShellForCausalLM",
    "granite_swa": "GraniteSWAForCausalLM",
    "hy_v3": "HYV3ForCausalLM",
    "jina-bert-v2": "JinaBertModel",
    "muse-glimmer": "MuseGlimmerForCausalLM",
    "nanbeige": "NanbeigeForCausalLM",
    "neo-bert": "NeoBERT",
    "openelm": "OpenELMForCausalLM",
    "plamo": "PlamoForCausalLM",
    "plm": "PLMForCausalLM",
    "qwen2vl": "Qwen2VLForConditionalGeneration",
    "qwen3vl": "Qwen3VLForConditionalGeneration",
    "refact": "GPTRefactForCausalLM",
    "rwkv6": "Rwkv6ForCausalLM",
    "rwkv7": "RWKV7ForCausalLM",
    "t5": "T5ForConditionalGeneration",
}
"""Further architectures, so that an error can name the model by the name its users know."""
