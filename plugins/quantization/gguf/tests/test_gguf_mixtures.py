"""What files with latent attention and with experts hold, tensor by tensor, and which of them are refused."""

import gguf
import numpy as np
import pytest
import torch
from core_plugin_gguf.reader import GGUFReader
from gguf import GGMLQuantizationType as Kind

from core.api.errors import CheckpointError

HIDDEN, HEADS, KEY, ROTATED, VALUE, LATENT, VOCAB = 64, 2, 32, 16, 16, 64, 96
EXPERTS, INNER = 3, 32
SHAPES = {
    "attn_norm": (HIDDEN,),
    "attn_q": (HEADS * (KEY + ROTATED), HIDDEN),
    "attn_kv_a_mqa": (LATENT + ROTATED, HIDDEN),
    "attn_kv_a_norm": (LATENT,),
    "attn_k_b": (HEADS, LATENT, KEY),
    "attn_v_b": (HEADS, VALUE, LATENT),
    "attn_output": (HIDDEN, HEADS * VALUE),
    "ffn_norm": (HIDDEN,),
    "ffn_gate_inp": (EXPERTS, HIDDEN),
    "ffn_gate_exps": (EXPERTS, INNER, HIDDEN),
    "ffn_up_exps": (EXPERTS, INNER, HIDDEN),
    "ffn_down_exps": (EXPERTS, HIDDEN, INNER),
    "exp_probs_b": (EXPERTS,),
}


def write(path, *, kind=Kind.F32, without=(), blocks=1, nextn=0, gating=2, **shapes):
    """Write a file of `deepseek2`; return the values as they are read, by GGUF's names."""
    writer, rng, prefix = gguf.GGUFWriter(path, "deepseek2"), np.random.default_rng(3), "deepseek2"
    writer.add_context_length(64)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(blocks)
    writer.add_feed_forward_length(2 * HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_key_length(LATENT + ROTATED)
    writer.add_key_length_mla(KEY + ROTATED)
    writer.add_rope_dimension_count(ROTATED)
    writer.add_kv_lora_rank(LATENT)
    writer.add_expert_count(EXPERTS)
    writer.add_expert_used_count(2)
    writer.add_expert_feed_forward_length(INNER)
    if gating:
        writer.add_uint32(f"{prefix}.expert_gating_func", gating)
    if nextn:
        writer.add_uint32(f"{prefix}.nextn_predict_layers", nextn)
    listed = {"token_embd.weight": (VOCAB, HIDDEN)}
    for block in range(blocks):
        names = {f"blk.{block}.{module}.weight": shape for module, shape in (SHAPES | shapes).items()}
        names[f"blk.{block}.exp_probs_b.bias"] = names.pop(f"blk.{block}.exp_probs_b.weight")
        listed |= {name: shape for name, shape in names.items() if name.split(".", 2)[2] not in without}
    found = {}
    for name, shape in listed.items():
        found[name] = rng.standard_normal(shape, dtype=np.float32)
        if len(shape) == 1 or kind == Kind.F32:
            writer.add_tensor(name, found[name])
            continue
        stored = gguf.quants.quantize(found[name], kind)
        writer.add_tensor(name, stored, raw_dtype=kind)
        found[name] = gguf.quants.dequantize(stored, kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return found


def tensors(path):
    return {tensor.name: tensor for tensor in GGUFReader().tensors(path, lambda size: None)}


@pytest.mark.covers("QUANT-12")
@pytest.mark.parametrize("kind", [Kind.F32, Kind.BF16, Kind.Q8_0])
def test_keys_and_values_of_latent_attention_become_one_tensor(tmp_path, kind):
    path, name = tmp_path / "tiny.gguf", "model.layers.0.self_attn.kv_b_proj.weight"
    written = write(path, kind=kind)
    info, tensor = GGUFReader().inspect(path), tensors(path)[name]
    assert info.tensors[name] == ((HEADS * (KEY + VALUE), LATENT), "float32")
    assert name not in info.quantization_config["tensors"]
    assert (tensor.shape, tensor.encoding) == ((HEADS * (KEY + VALUE), LATENT), "plain")
    keys, values = written["blk.0.attn_k_b.weight"].swapaxes(1, 2), written["blk.0.attn_v_b.weight"]
    expected = np.concatenate((keys, values), axis=1).reshape(-1, LATENT)
    np.testing.assert_array_equal(tensor.raw().numpy(), expected)
    np.testing.assert_array_equal(tensor.dense(torch.float32).numpy(), expected)


def test_keys_that_are_missing_or_of_another_size(tmp_path):
    path = tmp_path / "tiny.gguf"
    write(path, without={"attn_k_b.weight"})
    with pytest.raises(CheckpointError, match=r"CORE-M141 .*blk\.0\.attn_k_b\.weight is missing"):
        tensors(path)
    write(path, attn_k_b=(HEADS, LATENT, KEY + 2))
    with pytest.raises(CheckpointError, match=r"CORE-M141 .*has shape \(2, 64, 34\), but .* it has \(2, 64, 32\)"):
        tensors(path)
    write(path, attn_v_b=(VALUE, LATENT))
    with pytest.raises(CheckpointError, match=r"CORE-M141 .*not heads of values"):
        GGUFReader().inspect(path)


def test_blocks_that_predict_further_tokens_are_left_out(tmp_path):
    path = tmp_path / "tiny.gguf"
    write(path, blocks=3, nextn=1)
    info = GGUFReader().inspect(path)
    assert info.config["num_hidden_layers"] == 2
    assert not [name for name in info.tensors if "layers.2" in name or "blk" in name]
    assert info.tensors.keys() == tensors(path).keys()
    write(path, blocks=1, nextn=1)
    with pytest.raises(CheckpointError, match=r"CORE-M141 .*nextn_predict_layers leaves 0 of 1 blocks"):
        GGUFReader().inspect(path)


@pytest.mark.parametrize(
    ("gating", "without", "architecture"),
    [
        (1, (), "DeepseekV2ForCausalLM"),
        (2, (), "DeepseekV3ForCausalLM"),
        (0, (), "DeepseekV3ForCausalLM"),
        (0, {"exp_probs_b.bias"}, "DeepseekV2ForCausalLM"),
    ],
)
def test_the_version_is_known_by_how_experts_are_chosen(tmp_path, gating, without, architecture):
    write(tmp_path / "tiny.gguf", gating=gating, without=without)
    assert GGUFReader().inspect(tmp_path / "tiny.gguf").architecture == architecture


def test_experts_that_are_chosen_otherwise_are_refused(tmp_path):
    write(tmp_path / "tiny.gguf", gating=3)
    with pytest.raises(CheckpointError, match=r"CORE-M140 .*expert_gating_func is 3"):
        GGUFReader().inspect(tmp_path / "tiny.gguf")


@pytest.mark.parametrize("kind", [Kind.Q8_0, Kind.MXFP4])
def test_experts_in_blocks_are_those_of_one_tensor(tmp_path, kind):
    written = write(tmp_path / "tiny.gguf", kind=kind)
    found = tensors(tmp_path / "tiny.gguf")
    for module, name in (("ffn_gate_exps", "gate_proj"), ("ffn_down_exps", "down_proj")):
        for expert in range(EXPERTS):
            tensor = found[f"model.layers.0.mlp.experts.{expert}.{name}.weight"]
            assert tensor.encoding == f"gguf:{kind.name}"
            expected = written[f"blk.0.{module}.weight"][expert]
            np.testing.assert_array_equal(tensor.dense(torch.float32).numpy(), expected)
