"""Models of real sizes with random weights: their configurations, and what a token of them reads and multiplies."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "rope_theta": 500000.0,
    "rms_norm_eps": 1e-5,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
}
ONE = LLAMA | {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "head_dim": 64}
EIGHT = LLAMA | {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "head_dim": 128}
SMALL = LLAMA | {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 128,
}
FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3", "weight_block_size": [128, 128]}
QWEN: dict[str, Any] = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_hidden_layers": 4,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "norm_topk_prob": True,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "attention_bias": False,
    "rope_theta": 1e6,
    "vocab_size": 151936,
}
GPT_OSS: dict[str, Any] = {
    "architectures": ["GptOssForCausalLM"],
    "model_type": "gpt_oss",
    "hidden_size": 2880,
    "intermediate_size": 2880,
    "num_hidden_layers": 4,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "num_local_experts": 32,
    "num_experts_per_tok": 4,
    "sliding_window": 128,
    "attention_bias": True,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
    "rope_scaling": {
        "rope_type": "yarn",
        "rope_theta": 150000.0,
        "factor": 32.0,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "truncate": False,
        "original_max_position_embeddings": 4096,
    },
    "vocab_size": 201088,
    "quantization_config": {"quant_method": "mxfp4"},
}
DEEPSEEK: dict[str, Any] = {
    "architectures": ["DeepseekV2ForCausalLM"],
    "model_type": "deepseek_v2",
    "hidden_size": 2048,
    "intermediate_size": 10944,
    "num_hidden_layers": 4,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "q_lora_rank": None,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "n_routed_experts": 64,
    "n_shared_experts": 2,
    "num_experts_per_tok": 6,
    "moe_intermediate_size": 1408,
    "first_k_dense_replace": 1,
    "moe_layer_freq": 1,
    "n_group": 1,
    "topk_group": 1,
    "topk_method": "greedy",
    "scoring_func": "softmax",
    "norm_topk_prob": False,
    "routed_scaling_factor": 1.0,
    "rope_theta": 10000.0,
    "attention_bias": False,
    "vocab_size": 102400,
}
QWEN_NEXT: dict[str, Any] = QWEN | {
    "architectures": ["Qwen3NextForCausalLM"],
    "model_type": "qwen3_next",
    "intermediate_size": 5120,
    "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "partial_rotary_factor": 0.25,
    "full_attention_interval": 4,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "num_experts_per_tok": 10,
    "rope_theta": 1e7,
}


def dense(config: dict[str, Any]) -> tuple[int, int]:
    """Return the numbers of a Llama's layers, and of its output projection: all that a decoded token reads."""
    heads = (config["num_attention_heads"] + 2 * config["num_key_value_heads"]) * config["head_dim"]
    attention = config["hidden_size"] * (heads + config["num_attention_heads"] * config["head_dim"])
    layer = attention + 3 * config["hidden_size"] * config["intermediate_size"]
    return config["num_hidden_layers"] * layer, config["vocab_size"] * config["hidden_size"]


@dataclass(frozen=True)
class Shape:
    """A model.

    Attributes:
        config: Of the model.
        numbers: Returns how many numbers of its layers, and of its output projection, a token reads; None where rows
            of a step read different ones, and no share of a limit is told.
        size: Bytes of a number of the layers.
    """

    config: dict[str, Any]
    numbers: Callable[[dict[str, Any]], tuple[int, int]] | None = None
    size: float = 2.0

    @property
    def bytes(self) -> float:
        """Bytes that a decoded token reads."""
        layers, head = self.numbers(self.config) if self.numbers else (0, 0)
        return layers * self.size + head * 2

    @property
    def products(self) -> float:
        """Multiplications and sums of a token."""
        return 2.0 * sum(self.numbers(self.config)) if self.numbers else 0.0


SHAPES = {
    "1B": Shape(ONE, dense),
    "8B": Shape(EIGHT, dense),
    "8B in float8": Shape(EIGHT | {"quantization_config": FP8}, dense, 1.0),
    "four layers of Qwen3-30B-A3B": Shape(QWEN),
    "four layers of Qwen3-30B-A3B in float8": Shape(QWEN | {"quantization_config": FP8}),
    "four layers of gpt-oss-20b in MXFP4": Shape(GPT_OSS),
    "four layers of DeepSeek-V2-Lite": Shape(DEEPSEEK),
    "four layers of Qwen3-Next with 128 experts": Shape(QWEN_NEXT),
}


def write_model(folder: Path, config: dict[str, Any]) -> str:
    """Write a configuration, whose weights are made up when it is loaded, and a tokenizer; return the folder."""
    from core_testing.tinymodels import tiny_tokenizer

    common = {
        "hidden_act": "silu",
        "max_position_embeddings": 16384,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "eos_token_id": 1,
        "bos_token_id": 0,
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(common | config))
    tiny_tokenizer(folder)
    return str(folder)
