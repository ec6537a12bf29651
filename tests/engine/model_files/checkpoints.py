"""Tiny sound checkpoints of every format, all with the same model in them."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np
import torch
from safetensors.torch import load_file, save_file

from core_testing.tinyencoders import tiny_encoder
from core_testing.tinymodels import tiny_llama

SIZES = {"num_hidden_layers": 2, "max_position_embeddings": 64}
LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
GROUP = 32
QUANTIZED = {
    "awq": {"quant_method": "awq", "bits": 4, "group_size": GROUP, "zero_point": True, "version": "gemm"},
    "gptq": {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "sym": True, "desc_act": False},
    "compressed-tensors": {
        "quant_method": "compressed-tensors",
        "format": "int-quantized",
        "config_groups": {
            "group_0": {
                "targets": ["Linear"],
                "weights": {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel"},
                "input_activations": {
                    "num_bits": 8,
                    "type": "int",
                    "symmetric": True,
                    "strategy": "token",
                    "dynamic": True,
                },
            }
        },
        "ignore": ["lm_head"],
    },
}
ENCODERS = {
    "bert": "BertModel",
    "roberta": "RobertaForSequenceClassification",
    "distilbert": "DistilBertModel",
    "mpnet": "MPNetModel",
    "modernbert": "ModernBertModel",
    "nomic": "NomicBertModel",
    "colbert": "BertModel",
}
"""Family -> architecture; all of them pool."""
FORMATS = ("safetensors", "sharded", "gguf", *QUANTIZED)
"""Of a model that generates."""


def write(form: str, folder: Path) -> Path:
    """Write a checkpoint of this format into a new folder and return what a user would name."""
    if form == "gguf":
        return _gguf(folder, tiny_llama(folder.with_name("plain"), **SIZES))
    if form == "sharded":
        return tiny_llama(folder, shard_size="200KB", **SIZES)
    if form in ENCODERS:
        return _encoder(folder, form)
    path = tiny_llama(folder, **SIZES)
    if form in QUANTIZED:
        _quantize(path, form)
    return path


def write_blocks(folder: Path, kind: gguf.GGMLQuantizationType) -> Path:
    """Write a GGUF file of a model whose matrices are blocks of this type; of K types the blocks are made up."""
    plain = tiny_llama(folder.with_name("plain"), hidden_size=256, intermediate_size=512, **SIZES)
    return _gguf(folder, plain, kind)


def _quantize(path: Path, method: str) -> None:
    """Put codes in the place of every linear layer's weights; their values do not matter here."""
    file, stored = path / "model.safetensors", {}
    for name, tensor in load_file(file).items():
        module, _, _ = name.rpartition(".")
        if module.rpartition(".")[2] in LINEAR:
            stored |= {f"{module}.{part}": value for part, value in _codes(method, *tensor.shape).items()}
        else:
            stored[name] = tensor
    save_file(stored, file, metadata={"format": "pt"})
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**config, "quantization_config": QUANTIZED[method]}, indent=2))


def _codes(method: str, rows: int, columns: int) -> dict[str, torch.Tensor]:
    words = lambda *shape: torch.zeros(shape, dtype=torch.int32)  # noqa: E731
    scales = torch.full((columns // GROUP, rows), 0.01, dtype=torch.float16)
    if method == "awq":
        return {
            "qweight": words(columns, rows // 8),
            "qzeros": words(columns // GROUP, rows // 8),
            "scales": scales,
        }
    if method == "gptq":
        order = torch.arange(columns, dtype=torch.int32) // GROUP
        zeros = torch.full((columns // GROUP, rows // 8), 0x77777777, dtype=torch.int32)  # 8 of 16, less 1
        return {"qweight": words(columns // 8, rows), "qzeros": zeros, "scales": scales, "g_idx": order}
    return {"weight": torch.ones(rows, columns, dtype=torch.int8), "weight_scale": torch.full((rows, 1), 0.01)}


def _encoder(folder: Path, family: str) -> Path:
    layers = "n_layers" if family == "distilbert" else "num_hidden_layers"
    path = tiny_encoder(folder, ENCODERS[family], **{layers: 2})
    if family == "colbert":
        file, config = path / "model.safetensors", json.loads((path / "config.json").read_text())
        stored = {f"bert.{name}": tensor for name, tensor in load_file(file).items() if not name.startswith("pooler.")}
        save_file({**stored, "linear.weight": torch.full((20, config["hidden_size"]), 0.1)}, file)
        config |= {"architectures": ["HF_ColBERT"], "dim": 20}
        (path / "config.json").write_text(json.dumps(config, indent=2))
    return path


def _gguf(folder: Path, plain: Path, kind: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.Q8_0) -> Path:
    folder.mkdir()
    path = folder / "tiny.gguf"
    config = json.loads((plain / "config.json").read_text())
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["hidden_size"] // config["num_attention_heads"])
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(config["vocab_size"])
    _vocabulary(writer, json.loads((plain / "tokenizer.json").read_text()))
    for name, tensor in load_file(plain / "model.safetensors").items():
        values = tensor.numpy()
        if values.ndim == 2:
            writer.add_tensor(_stored_name(name), _blocks(values, kind), raw_dtype=kind)
        else:
            writer.add_tensor(_stored_name(name), values.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _blocks(values: np.ndarray, kind: gguf.GGMLQuantizationType) -> np.ndarray:
    if not kind.name.endswith("_K"):
        return gguf.quants.quantize(values, kind)
    block, size = gguf.GGML_QUANT_SIZES[kind]
    made = np.random.default_rng(values.size).integers(0, 256, (values.size // block, size), dtype=np.uint8)
    made[:, :4] = np.array([2e-4, 1.5e-3], np.float16).view(np.uint8)  # scales of scales and of minima
    return made.reshape(len(values), -1)


def _vocabulary(writer: gguf.GGUFWriter, tokenizer: dict) -> None:
    texts = sorted(tokenizer["model"]["vocab"], key=tokenizer["model"]["vocab"].get)
    special = {one["content"] for one in tokenizer["added_tokens"]}
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(texts)
    writer.add_token_types([gguf.TokenType.CONTROL if text in special else gguf.TokenType.NORMAL for text in texts])
    writer.add_token_merges([" ".join(pair) for pair in tokenizer["model"]["merges"]])
    writer.add_eos_token_id(2)
    writer.add_bos_token_id(1)


def _stored_name(name: str) -> str:
    if name.startswith("model.layers."):
        _, _, number, module = name.removesuffix(".weight").split(".", 3)
        return f"blk.{number}.{_MODULES[module]}.weight"
    return {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}[
        name.removesuffix(".weight")
    ] + ".weight"


_MODULES = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
