"""The table of architectures, against the names that the gguf library's converter tables have."""

import gguf
import numpy as np
import pytest
import torch
from core_plugin_gguf.reader import GGUFReader
from core_plugin_gguf.rows import Pairs, Turns
from core_plugin_gguf.table import ARCHITECTURES, KNOWN_ARCHITECTURES
from gguf import GGMLQuantizationType as Kind

KINDS = {name: kind for kind, name in gguf.MODEL_ARCH_NAMES.items()}
HIDDEN, HEADS, VOCAB = 64, 4, 96
PARTS = {
    "granitemoe": {"blk.0.ffn_gate_shexp", "blk.0.ffn_up_shexp"},
    "bailingmoe": {"blk.0.attn_q", "blk.0.attn_k", "blk.0.attn_v"},
}
"""Architecture -> what its converter makes of a part of a tensor, without looking for a name."""


def names_of(arch):
    """Return the library's table of names; it keeps what one architecture calls otherwise for all later ones."""
    usual = dict(gguf.TensorNameMap.block_mappings_cfg)
    try:
        return gguf.get_tensor_name_map(arch, 1)
    finally:
        gguf.TensorNameMap.block_mappings_cfg.clear()
        gguf.TensorNameMap.block_mappings_cfg.update(usual)


@pytest.mark.covers("QUANT-12")
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_names_are_those_of_the_converter(arch):
    table, names = ARCHITECTURES[arch], names_of(KINDS[arch])
    known = {gguf.TENSOR_NAMES[one].format(bid=0) for one in gguf.MODEL_TENSORS[KINDS[arch]]}
    listed = {f"blk.0.{module}": f"{table.layer.format(0)}.{path}" for module, path in table.blocks.items()}
    # The converter's table has these with the suffix that they lose.
    listed |= {f"blk.0.{module}": listed[f"blk.0.{module}"] + ".weight" for module in table.unsuffixed}
    listed |= table.modules
    for stored, path in listed.items():
        if stored in known:
            bare = path.removeprefix("transformer.") if arch == "bloom" else path
            # The converter gives some biases that are no module's the name of one.
            found = names.get_name(bare) or names.get_name(bare.removesuffix("_bias"))
            assert found == (None if stored in PARTS.get(arch, ()) else stored), path
    assert known & set(listed)


def test_no_architecture_is_both_read_and_refused():
    assert not ARCHITECTURES.keys() & KNOWN_ARCHITECTURES.keys()
    assert ARCHITECTURES.keys() | KNOWN_ARCHITECTURES.keys() <= KINDS.keys()


def test_rows_by_turns_and_in_pairs():
    rows = torch.arange(16).view(16, 1)
    # Four heads of queries, two of keys and of values, each of two rows.
    stored = torch.cat((rows[0:4], rows[8:12], rows[4:6], rows[12:14], rows[6:8], rows[14:16]))
    assert torch.equal(Turns(4, 2).undone(stored), rows)
    paired = torch.tensor([0, 2, 1, 3, 4, 6, 5, 7]).view(8, 1)
    assert torch.equal(Pairs(2).undone(paired), torch.arange(8).view(8, 1))


def write(path, arch, modules, kind):
    """Write a file of one layer whose matrices are of a block type."""
    writer = gguf.GGUFWriter(path, arch)
    writer.add_context_length(64)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(1)
    writer.add_feed_forward_length(2 * HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_layer_norm_eps(1e-5)
    rng = np.random.default_rng(0)
    made = {"token_embd.weight": rng.standard_normal((VOCAB, HIDDEN), dtype=np.float32)}
    for module, shape in modules.items():
        made[f"blk.0.{module}.weight"] = rng.standard_normal(shape, dtype=np.float32)
    for name, values in made.items():
        if values.ndim == 1:
            writer.add_tensor(name, values)
        else:
            writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return {
        name: gguf.quants.dequantize(gguf.quants.quantize(values, kind), kind)
        for name, values in made.items()
        if values.ndim == 2
    }


def test_matrices_that_are_turned_are_opened(tmp_path):
    written = write(tmp_path / "tiny.gguf", "gpt2", {"attn_norm": HIDDEN, "attn_qkv": (192, HIDDEN)}, Kind.Q8_0)
    name, reader = "transformer.h.0.attn.c_attn.weight", GGUFReader()
    info = reader.inspect(tmp_path / "tiny.gguf")
    assert info.tensors[name] == ((HIDDEN, 192), "float32")
    assert name not in info.quantization_config["tensors"]
    tensor = next(one for one in reader.tensors(tmp_path / "tiny.gguf", lambda size: None) if one.name == name)
    assert (tensor.shape, tensor.encoding) == ((HIDDEN, 192), "plain")
    for values in (tensor.raw(), tensor.dense(torch.float32)):
        np.testing.assert_array_equal(values.numpy(), written["blk.0.attn_qkv.weight"].T)


def test_blocks_of_a_fused_projection_are_put_into_turns(tmp_path):
    written = write(tmp_path / "tiny.gguf", "gptneox", {"attn_norm": HIDDEN, "attn_qkv": (192, HIDDEN)}, Kind.Q8_0)
    name, reader = "gpt_neox.layers.0.attention.query_key_value.weight", GGUFReader()
    tensor = next(one for one in reader.tensors(tmp_path / "tiny.gguf", lambda size: None) if one.name == name)
    assert tensor.encoding == "gguf:Q8_0"
    expected = written["blk.0.attn_qkv.weight"].reshape(3, HEADS, -1, HIDDEN).swapaxes(0, 1).reshape(192, HIDDEN)
    np.testing.assert_array_equal(tensor.dense(torch.float32).numpy(), expected)


def test_a_fused_projection_comes_in_three(tmp_path):
    written = write(
        tmp_path / "tiny.gguf", "phi2", {"attn_norm": HIDDEN, "attn_output": (64, 64), "attn_qkv": (192, 64)}, Kind.Q4_0
    )
    tensors = {one.name: one for one in GGUFReader().tensors(tmp_path / "tiny.gguf", lambda size: None)}
    for index, part in enumerate(("q_proj", "k_proj", "v_proj")):
        tensor = tensors[f"model.layers.0.self_attn.{part}.weight"]
        assert (tensor.shape, tensor.encoding) == ((64, 64), "gguf:Q4_0")
        expected = written["blk.0.attn_qkv.weight"][index * 64 : index * 64 + 64]
        np.testing.assert_array_equal(tensor.dense(torch.float32).numpy(), expected)
