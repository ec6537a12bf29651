"""Checkpoints of a shape with made-up weights: a few layers of models that are too large to be compared whole.

Speed does not depend on what the weights are; only the formats, and so the bytes that a step reads, are those of the
models. Layers are cut to four, the vocabulary to 32,000.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

LAYERS, VOCABULARY, HIDDEN = 4, 32_000, 2048
_PART = 2 << 30
"""Bytes of a safetensors file, about."""

Sizes = Iterator[tuple[str, tuple[int, ...]]]
"""Names and shapes of a checkpoint's tensors."""


@dataclass(frozen=True)
class Shape:
    """A model.

    Attributes:
        config: What its `config.json` says, beside what all shapes share.
        layer: Returns the tensors of a layer, names behind `model.layers.N.`.
        arch: llama.cpp's name of the architecture.
        metadata: Of its GGUF file, names behind the architecture's.
        gguf: Returns the tensors of a layer as a GGUF file has them, names behind `blk.N.`.
    """

    config: Mapping[str, Any]
    layer: Callable[[int], Sizes]
    arch: str
    metadata: Mapping[str, Any]
    gguf: Callable[[int], Sizes]


# ---- Qwen3-30B-A3B ---------------------------------------------------------------------------------------------------

_QWEN = {"experts": 128, "top_k": 8, "size": 768, "heads": 32, "kv_heads": 4, "head_dim": 128}


def _qwen_layer(layer: int) -> Sizes:
    q, kv, head = _QWEN["heads"] * _QWEN["head_dim"], _QWEN["kv_heads"] * _QWEN["head_dim"], _QWEN["head_dim"]
    for name, rows in (("q", q), ("k", kv), ("v", kv)):
        yield f"self_attn.{name}_proj.weight", (rows, HIDDEN)
    yield "self_attn.o_proj.weight", (HIDDEN, q)
    for name, size in (("self_attn.q_norm", head), ("self_attn.k_norm", head), *_norms()):
        yield f"{name}.weight", (size,)
    yield "mlp.gate.weight", (_QWEN["experts"], HIDDEN)
    for expert in range(_QWEN["experts"]):
        yield from _mlp(f"mlp.experts.{expert}", _QWEN["size"])


def _qwen_gguf(layer: int) -> Sizes:
    q, kv, head = _QWEN["heads"] * _QWEN["head_dim"], _QWEN["kv_heads"] * _QWEN["head_dim"], _QWEN["head_dim"]
    for name, rows in (("q", q), ("k", kv), ("v", kv)):
        yield f"attn_{name}.weight", (rows, HIDDEN)
    yield "attn_output.weight", (HIDDEN, q)
    for name, size in (("attn_q_norm", head), ("attn_k_norm", head), ("attn_norm", HIDDEN), ("ffn_norm", HIDDEN)):
        yield f"{name}.weight", (size,)
    yield "ffn_gate_inp.weight", (_QWEN["experts"], HIDDEN)
    yield from _stacked(_QWEN["experts"], _QWEN["size"])


QWEN3_MOE = Shape(
    config={
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "num_attention_heads": _QWEN["heads"],
        "num_key_value_heads": _QWEN["kv_heads"],
        "head_dim": _QWEN["head_dim"],
        "num_experts": _QWEN["experts"],
        "num_experts_per_tok": _QWEN["top_k"],
        "moe_intermediate_size": _QWEN["size"],
        "intermediate_size": 6144,
        "norm_topk_prob": True,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "rope_theta": 1e6,
        "attention_bias": False,
    },
    layer=_qwen_layer,
    arch="qwen3moe",
    metadata={
        "attention.head_count": _QWEN["heads"],
        "attention.head_count_kv": _QWEN["kv_heads"],
        "attention.key_length": _QWEN["head_dim"],
        "attention.value_length": _QWEN["head_dim"],
        "feed_forward_length": 6144,
        "expert_count": _QWEN["experts"],
        "expert_used_count": _QWEN["top_k"],
        "expert_feed_forward_length": _QWEN["size"],
        "rope.freq_base": 1e6,
    },
    gguf=_qwen_gguf,
)

# ---- DeepSeek-V2-Lite ------------------------------------------------------------------------------------------------

_LITE = {"experts": 64, "top_k": 6, "size": 1408, "dense": 10_944, "heads": 16}
_LATENT, _ROPE, _KEY, _VALUE = 512, 64, 128, 128
_QUERY = 1536
"""Latent of the queries. Lite has none, but llama.cpp knows Lite by its 27 layers, and asks others for one."""


def _lite_layer(layer: int) -> Sizes:
    heads = _LITE["heads"]
    yield "self_attn.q_a_proj.weight", (_QUERY, HIDDEN)
    yield "self_attn.q_b_proj.weight", (heads * (_KEY + _ROPE), _QUERY)
    yield "self_attn.kv_a_proj_with_mqa.weight", (_LATENT + _ROPE, HIDDEN)
    yield "self_attn.kv_b_proj.weight", (heads * (_KEY + _VALUE), _LATENT)
    yield "self_attn.o_proj.weight", (HIDDEN, heads * _VALUE)
    norms = (("self_attn.q_a_layernorm", _QUERY), ("self_attn.kv_a_layernorm", _LATENT), *_norms())
    for name, size in norms:
        yield f"{name}.weight", (size,)
    if layer == 0:
        yield from _mlp("mlp", _LITE["dense"])
        return
    yield "mlp.gate.weight", (_LITE["experts"], HIDDEN)
    yield from _mlp("mlp.shared_experts", 2 * _LITE["size"])
    for expert in range(_LITE["experts"]):
        yield from _mlp(f"mlp.experts.{expert}", _LITE["size"])


def _lite_gguf(layer: int) -> Sizes:
    heads = _LITE["heads"]
    yield "attn_q_a.weight", (_QUERY, HIDDEN)
    yield "attn_q_b.weight", (heads * (_KEY + _ROPE), _QUERY)
    yield "attn_kv_a_mqa.weight", (_LATENT + _ROPE, HIDDEN)
    yield "attn_k_b.weight", (heads, _LATENT, _KEY)
    yield "attn_v_b.weight", (heads, _VALUE, _LATENT)
    yield "attn_output.weight", (HIDDEN, heads * _VALUE)
    norms = (("attn_q_a_norm", _QUERY), ("attn_kv_a_norm", _LATENT), ("attn_norm", HIDDEN), ("ffn_norm", HIDDEN))
    for name, size in norms:
        yield f"{name}.weight", (size,)
    if layer == 0:
        yield from _dense("", _LITE["dense"])
        return
    yield "ffn_gate_inp.weight", (_LITE["experts"], HIDDEN)
    yield from _dense("_shexp", 2 * _LITE["size"])
    yield from _stacked(_LITE["experts"], _LITE["size"])


DEEPSEEK_LITE = Shape(
    config={
        "architectures": ["DeepseekV2ForCausalLM"],
        "model_type": "deepseek_v2",
        "num_attention_heads": _LITE["heads"],
        "num_key_value_heads": _LITE["heads"],
        "q_lora_rank": _QUERY,
        "kv_lora_rank": _LATENT,
        "qk_nope_head_dim": _KEY,
        "qk_rope_head_dim": _ROPE,
        "v_head_dim": _VALUE,
        "n_routed_experts": _LITE["experts"],
        "n_shared_experts": 2,
        "num_experts_per_tok": _LITE["top_k"],
        "moe_intermediate_size": _LITE["size"],
        "intermediate_size": _LITE["dense"],
        "first_k_dense_replace": 1,
        "moe_layer_freq": 1,
        "n_group": 1,
        "topk_group": 1,
        "topk_method": "greedy",
        "scoring_func": "softmax",
        "norm_topk_prob": False,
        "routed_scaling_factor": 1.0,
        "rope_theta": 10_000.0,
        "attention_bias": False,
    },
    layer=_lite_layer,
    arch="deepseek2",
    metadata={
        "attention.head_count": _LITE["heads"],
        "attention.head_count_kv": 1,
        "attention.key_length": _LATENT + _ROPE,
        "attention.value_length": _LATENT,
        "attention.key_length_mla": _KEY + _ROPE,
        "attention.value_length_mla": _VALUE,
        "attention.q_lora_rank": _QUERY,
        "attention.kv_lora_rank": _LATENT,
        "rope.dimension_count": _ROPE,
        "rope.freq_base": 10_000.0,
        "feed_forward_length": _LITE["dense"],
        "leading_dense_block_count": 1,
        "expert_count": _LITE["experts"],
        "expert_shared_count": 2,
        "expert_used_count": _LITE["top_k"],
        "expert_feed_forward_length": _LITE["size"],
        "expert_weights_scale": 1.0,
        "expert_gating_func": 1,  # softmax
    },
    gguf=_lite_gguf,
)

# ---- Qwen3-Next-80B-A3B ----------------------------------------------------------------------------------------------

_NEXT = {"experts": 128, "top_k": 10, "size": 512, "heads": 16, "kv_heads": 2, "head_dim": 256}
"""A quarter of its 512 experts: a token reads ten of them and the router's row of each, whatever their number."""
_STATE, _KEY_HEADS, _VALUE_HEADS, _CONV = 128, 16, 32, 4
_KEYS, _VALUES = _KEY_HEADS * _STATE, _VALUE_HEADS * _STATE


def _next_layer(layer: int) -> Sizes:
    heads, kv, size = _NEXT["heads"], _NEXT["kv_heads"], _NEXT["head_dim"]
    if _attends(layer):
        yield "self_attn.q_proj.weight", (2 * heads * size, HIDDEN)
        for name in ("k", "v"):
            yield f"self_attn.{name}_proj.weight", (kv * size, HIDDEN)
        yield "self_attn.o_proj.weight", (HIDDEN, heads * size)
        yield "self_attn.q_norm.weight", (size,)
        yield "self_attn.k_norm.weight", (size,)
    else:
        yield "linear_attn.in_proj_qkvz.weight", (2 * (_KEYS + _VALUES), HIDDEN)
        yield "linear_attn.in_proj_ba.weight", (2 * _VALUE_HEADS, HIDDEN)
        yield "linear_attn.conv1d.weight", (2 * _KEYS + _VALUES, 1, _CONV)
        yield "linear_attn.dt_bias", (_VALUE_HEADS,)
        yield "linear_attn.A_log", (_VALUE_HEADS,)
        yield "linear_attn.norm.weight", (_STATE,)
        yield "linear_attn.out_proj.weight", (HIDDEN, _VALUES)
    for name, width in _norms():
        yield f"{name}.weight", (width,)
    yield "mlp.gate.weight", (_NEXT["experts"], HIDDEN)
    yield "mlp.shared_expert_gate.weight", (1, HIDDEN)
    yield from _mlp("mlp.shared_expert", _NEXT["size"])
    for expert in range(_NEXT["experts"]):
        yield from _mlp(f"mlp.experts.{expert}", _NEXT["size"])


def _next_gguf(layer: int) -> Sizes:
    heads, kv, size = _NEXT["heads"], _NEXT["kv_heads"], _NEXT["head_dim"]
    if _attends(layer):
        yield "attn_q.weight", (2 * heads * size, HIDDEN)
        for name in ("k", "v"):
            yield f"attn_{name}.weight", (kv * size, HIDDEN)
        yield "attn_output.weight", (HIDDEN, heads * size)
        yield "attn_q_norm.weight", (size,)
        yield "attn_k_norm.weight", (size,)
    else:
        yield "attn_qkv.weight", (2 * _KEYS + _VALUES, HIDDEN)
        yield "attn_gate.weight", (_VALUES, HIDDEN)
        yield "ssm_ba.weight", (2 * _VALUE_HEADS, HIDDEN)
        yield "ssm_conv1d.weight", (2 * _KEYS + _VALUES, _CONV)
        yield "ssm_dt.bias", (_VALUE_HEADS,)
        yield "ssm_a", (_VALUE_HEADS,)
        yield "ssm_norm.weight", (_STATE,)
        yield "ssm_out.weight", (HIDDEN, _VALUES)
    for name in ("attn_norm", "post_attention_norm"):
        yield f"{name}.weight", (HIDDEN,)
    yield "ffn_gate_inp.weight", (_NEXT["experts"], HIDDEN)
    yield "ffn_gate_inp_shexp.weight", (HIDDEN,)
    yield from _dense("_shexp", _NEXT["size"])
    yield from _stacked(_NEXT["experts"], _NEXT["size"])


def _attends(layer: int) -> bool:
    return layer % 4 == 3


QWEN3_NEXT = Shape(
    config={
        "architectures": ["Qwen3NextForCausalLM"],
        "model_type": "qwen3_next",
        "num_attention_heads": _NEXT["heads"],
        "num_key_value_heads": _NEXT["kv_heads"],
        "head_dim": _NEXT["head_dim"],
        "partial_rotary_factor": 0.25,
        "full_attention_interval": 4,
        "linear_num_key_heads": _KEY_HEADS,
        "linear_num_value_heads": _VALUE_HEADS,
        "linear_key_head_dim": _STATE,
        "linear_value_head_dim": _STATE,
        "linear_conv_kernel_dim": _CONV,
        "num_experts": _NEXT["experts"],
        "num_experts_per_tok": _NEXT["top_k"],
        "moe_intermediate_size": _NEXT["size"],
        "shared_expert_intermediate_size": _NEXT["size"],
        "intermediate_size": 5120,
        "norm_topk_prob": True,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "rope_theta": 1e7,
        "attention_bias": False,
    },
    layer=_next_layer,
    arch="qwen3next",
    metadata={
        "attention.head_count": _NEXT["heads"],
        "attention.head_count_kv": _NEXT["kv_heads"],
        "attention.key_length": _NEXT["head_dim"],
        "attention.value_length": _NEXT["head_dim"],
        "rope.dimension_count": _NEXT["head_dim"] // 4,
        "rope.freq_base": 1e7,
        "full_attention_interval": 4,
        "ssm.conv_kernel": _CONV,
        "ssm.inner_size": _VALUES,
        "ssm.state_size": _STATE,
        "ssm.time_step_rank": _VALUE_HEADS,
        "ssm.group_count": _KEY_HEADS,
        "feed_forward_length": 5120,
        "expert_count": _NEXT["experts"],
        "expert_used_count": _NEXT["top_k"],
        "expert_feed_forward_length": _NEXT["size"],
        "expert_shared_feed_forward_length": _NEXT["size"],
    },
    gguf=_next_gguf,
)

SHAPES = {"qwen3-moe": QWEN3_MOE, "deepseek-lite": DEEPSEEK_LITE, "qwen3-next": QWEN3_NEXT}


def _norms() -> tuple[tuple[str, int], ...]:
    return ("input_layernorm", HIDDEN), ("post_attention_layernorm", HIDDEN)


def _mlp(prefix: str, size: int) -> Sizes:
    for name in ("gate", "up"):
        yield f"{prefix}.{name}_proj.weight", (size, HIDDEN)
    yield f"{prefix}.down_proj.weight", (HIDDEN, size)


def _dense(kind: str, size: int) -> Sizes:
    for name in ("gate", "up"):
        yield f"ffn_{name}{kind}.weight", (size, HIDDEN)
    yield f"ffn_down{kind}.weight", (HIDDEN, size)


def _stacked(experts: int, size: int) -> Sizes:
    for name in ("gate", "up"):
        yield f"ffn_{name}_exps.weight", (experts, size, HIDDEN)
    yield "ffn_down_exps.weight", (experts, HIDDEN, size)


# ---- files -----------------------------------------------------------------------------------------------------------


def hugging_face(shape: Shape, tokenizer: Path, target: Path) -> None:
    """Write a checkpoint in bfloat16, with somebody else's tokenizer: nothing of what it says is read."""
    import torch
    from safetensors.torch import save_file

    target.mkdir()
    for file in tokenizer.glob("*token*"):
        shutil.copy(file, target)
    common = {
        "hidden_size": HIDDEN,
        "num_hidden_layers": LAYERS,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-6,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    (target / "config.json").write_text(json.dumps({**common, **shape.config}, indent=2))
    made, places, part, held = _Weights(), {}, {}, 0
    number = 0

    def write() -> None:
        nonlocal part, held, number
        number += 1
        file = f"model-{number:05}.safetensors"
        save_file(part, target / file, metadata={"format": "pt"})
        places.update(dict.fromkeys(part, file))
        part, held = {}, 0

    for name, size in _tensors(shape.layer, "model.layers.{}.", _ENDS):
        part[name] = (
            torch.from_numpy(made(size)).bfloat16() if len(size) > 1 else torch.ones(size, dtype=torch.bfloat16)
        )
        held += part[name].nbytes
        if held > _PART:
            write()
    write()
    index = {"metadata": {}, "weight_map": places}
    (target / "model.safetensors.index.json").write_text(json.dumps(index))


def gguf_file(shape: Shape, kind: str, target: Path) -> None:
    """Write a GGUF file of `BF16` or `Q4_0`, with a vocabulary that is as made up as the weights."""
    import gguf
    import numpy as np

    writer = gguf.GGUFWriter(target, shape.arch)
    writer.add_file_type(int(gguf.LlamaFileType[f"MOSTLY_{kind}"]))
    _add_vocabulary(writer)
    common = {
        "vocab_size": VOCABULARY,
        "context_length": 8192,
        "embedding_length": HIDDEN,
        "block_count": LAYERS,
        "attention.layer_norm_rms_epsilon": 1e-6,
    }
    for name, value in {**common, **shape.metadata}.items():
        add = writer.add_float32 if isinstance(value, float) else writer.add_uint32
        add(f"{shape.arch}.{name}", value)
    made = _Weights()
    form = gguf.GGMLQuantizationType[kind]
    for name, size in _tensors(shape.gguf, "blk.{}.", _GGUF_ENDS):
        whole = len(size) == 1 or "ffn_gate_inp" in name or "ssm_conv1d" in name
        # A decay is the exponential of a product with `ssm_a`.
        values = made(size) if len(size) > 1 else np.full(size, -1.0 if "ssm_a" in name else 1.0, np.float32)
        stored = values if whole else gguf.quants.quantize(values, form)
        writer.add_tensor(name, stored, raw_dtype=gguf.GGMLQuantizationType.F32 if whole else form)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


_ENDS = {"model.embed_tokens": 2, "model.norm": 1, "lm_head": 2}
_GGUF_ENDS = {"token_embd": 2, "output_norm": 1, "output": 2}


def _add_vocabulary(writer: Any) -> None:
    """Add pieces in SentencePiece's form: special ones, bytes, and words of two letters and a number."""
    import gguf

    special, unknown, bytes_, normal = (
        gguf.TokenType.CONTROL,
        gguf.TokenType.UNKNOWN,
        gguf.TokenType.BYTE,
        gguf.TokenType.NORMAL,
    )
    pieces = [("<unk>", unknown), ("<s>", special), ("</s>", special)]
    pieces += [(f"<0x{byte:02X}>", bytes_) for byte in range(256)]
    pieces += [(f"\u2581w{number}", normal) for number in range(VOCABULARY - len(pieces))]
    writer.add_tokenizer_model("llama")
    writer.add_token_list([piece for piece, _ in pieces])
    writer.add_token_scores([-float(place) for place in range(len(pieces))])
    writer.add_token_types([kind for _, kind in pieces])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)


def _tensors(layer: Callable[[int], Sizes], prefix: str, ends: Mapping[str, int]) -> Sizes:
    for name, dims in ends.items():
        yield f"{name}.weight", (VOCABULARY, HIDDEN) if dims == 2 else (HIDDEN,)
    for number in range(LAYERS):
        for name, size in layer(number):
            yield prefix.format(number) + name, size


class _Weights:
    """Gives random weights: parts of one block of random numbers, each from another place of it."""

    def __init__(self) -> None:
        import numpy as np

        self._block = np.random.default_rng(0).normal(0.0, 0.02, 1 << 24).astype(np.float32)
        self._place = 0

    def __call__(self, size: tuple[int, ...]) -> np.ndarray[Any, Any]:
        import numpy as np

        count = int(np.prod(size))
        self._place = (self._place + 1_000_003) % len(self._block)
        return np.resize(np.roll(self._block, -self._place), count).reshape(size)
