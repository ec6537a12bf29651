"""The table of architectures, against the names that the gguf library's converter tables have."""

import gguf
import numpy as np
import pytest
import torch
from core_plugin_gguf.reader import GGUFReader
from core_plugin_gguf.rows import Dealt, Pairs, Together, Turns
from core_plugin_gguf.table import ARCHITECTURES, KNOWN_ARCHITECTURES
from gguf import GGMLQuantizationType as Kind

from core.api import CheckpointError

KINDS = {name: kind for kind, name in gguf.MODEL_ARCH_NAMES.items()}
HIDDEN, HEADS, VOCAB = 64, 4, 96
NEWER = {"deepseek32", "granite_swa", "hy_v3", "minimax-01", "muse-glimmer", "nanbeige"}
"""Architectures that the library does not know yet."""
PARTS = {
    "granitemoe": {"blk.0.ffn_gate_shexp", "blk.0.ffn_up_shexp"},
    "bailingmoe": {"blk.0.attn_q", "blk.0.attn_k", "blk.0.attn_v"},
    "granitehybrid": {f"blk.0.ffn_{part}" for part in ("gate", "up", "down", "gate_shexp", "up_shexp")},
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
@pytest.mark.parametrize("arch", [one for one in ARCHITECTURES if one not in NEWER])
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
            bare = bare.removesuffix(".{}")  # several, put together
            # The converter gives some biases that are no module's the name of one.
            spelled = (bare, bare.removesuffix("_bias"), bare.replace(".dt_bias", ".dt_proj"))
            found = next(filter(None, map(names.get_name, spelled)), None)
            assert (found == stored) == (stored not in PARTS.get(arch, ())), path
    assert known & set(listed)


def test_no_architecture_is_both_read_and_refused():
    assert not ARCHITECTURES.keys() & KNOWN_ARCHITECTURES.keys()
    assert ARCHITECTURES.keys() | KNOWN_ARCHITECTURES.keys() <= KINDS.keys() | NEWER
    assert not NEWER & KINDS.keys()


def test_rows_by_turns_and_in_pairs():
    rows = torch.arange(16).view(16, 1)
    # Four heads of queries, two of keys and of values, each of two rows.
    stored = torch.cat((rows[0:4], rows[8:12], rows[4:6], rows[12:14], rows[6:8], rows[14:16]))
    assert torch.equal(Turns(4, 2).undone(stored), rows)
    paired = torch.tensor([0, 2, 1, 3, 4, 6, 5, 7]).view(8, 1)
    assert torch.equal(Pairs(2).undone(paired), torch.arange(8).view(8, 1))


def test_parts_of_groups_and_heads_that_were_dealt_out():
    # Three groups of two rows of one part and one of the other.
    stored = torch.tensor([0, 1, 6, 2, 3, 7, 4, 5, 8]).view(9, 1)
    order = Together(3, (2, 1))
    assert torch.equal(order.undone(stored), torch.arange(9).view(9, 1))
    assert order.fits(9) and not order.fits(12)
    # Two rows in front; two groups of three heads of two rows.
    heads = torch.arange(2, 14).view(2, 3, 2)
    stored = torch.cat((torch.arange(2), heads.transpose(0, 1).flatten())).view(14, 1)
    order = Dealt(2, 2, first=2)
    assert torch.equal(order.undone(stored), torch.arange(14).view(14, 1))
    assert order.fits(14) and not order.fits(15) and not order.fits(1)
    assert Pairs(2).fits(8) and not Pairs(2).fits(6) and not Pairs(0).fits(8)
    assert Turns(4, 2).fits(16) and not Turns(4, 2).fits(17) and not Turns(3, 2).fits(14)


DELTA = {"group_count": 2, "time_step_rank": 4, "state_size": 16, "inner_size": 128, "conv_kernel": 4}
"""Two heads of keys, of 16 numbers, each shared by two heads of values, of 32."""


def dealt(rows):
    """Deal heads of values out, as converters do."""
    return rows.reshape(2, 2, -1, *rows.shape[1:]).swapaxes(0, 1).reshape(rows.shape)


def of_delta(path, arch, modules, **keys):
    sizes = {f"ssm.{name}": size for name, size in DELTA.items()}
    written = write(path, arch, modules, Kind.Q8_0, head_count_kv=2, **{**sizes, **keys})
    tensors = {one.name: one for one in GGUFReader().tensors(path, lambda size: None)}
    return written, tensors, GGUFReader().inspect(path)


def test_heads_that_were_dealt_out_are_put_back(tmp_path):
    """Rows stay blocks in another order; columns lie across blocks, which are opened."""
    modules = {"attn_qkv": (192, HIDDEN), "attn_gate": (128, HIDDEN), "ssm_out": (HIDDEN, 128), "ssm_conv1d": (192, 4)}
    written, tensors, info = of_delta(tmp_path / "tiny.gguf", "qwen35", modules)
    layer = "model.layers.0.linear_attn"
    for name, first in ((f"{layer}.in_proj_qkv.weight", 64), (f"{layer}.in_proj_z.weight", 0)):
        stored = written[f"blk.0.{'attn_qkv' if first else 'attn_gate'}.weight"]
        assert tensors[name].encoding == "gguf:Q8_0" and info.quantization_config["tensors"][name] == "Q8_0"
        expected = np.concatenate((stored[:first], dealt(stored[first:])))
        np.testing.assert_array_equal(tensors[name].dense(torch.float32).numpy(), expected)
    out = tensors[f"{layer}.out_proj.weight"]
    assert out.encoding == "plain" and info.tensors[out.name] == ((HIDDEN, 128), "float32")
    assert out.name not in info.quantization_config["tensors"]
    expected = dealt(written["blk.0.ssm_out.weight"].T).T
    for values in (out.dense(torch.float32), out.raw()):
        np.testing.assert_array_equal(values.numpy(), expected)
    assert tensors[f"{layer}.conv1d.weight"].shape == (192, 1, 4)


def test_parts_of_a_head_of_keys_come_as_modules(tmp_path):
    """Of Qwen3-Next; older files have all projections of a head of keys together, too."""
    names = ("expert_count", "expert_used_count", "expert_feed_forward_length", "expert_shared_feed_forward_length")
    modules = {"ssm_ba": (8, HIDDEN), "ssm_in": (320, HIDDEN)}
    written, tensors, _ = of_delta(tmp_path / "tiny.gguf", "qwen3next", modules, **dict.fromkeys(names, 2))
    rows = written["blk.0.ssm_ba.weight"].reshape(2, 2, 2, HIDDEN).swapaxes(0, 1).reshape(2, 4, HIDDEN)
    wide = written["blk.0.ssm_in.weight"].reshape(2, 160, HIDDEN)
    q, k, v, z = (part.reshape(-1, HIDDEN) for part in np.split(wide, [16, 32, 96], axis=1))
    expected = {"b": rows[0], "a": rows[1], "qkv": np.concatenate((q, k, v)), "z": z}
    for part, values in expected.items():
        tensor = tensors[f"model.layers.0.linear_attn.in_proj_{part}.weight"]
        assert (tensor.shape, tensor.encoding) == (values.shape, "gguf:Q8_0")
        np.testing.assert_array_equal(tensor.dense(torch.float32).numpy(), values)


def test_decays_are_logarithms_again(tmp_path):
    decays = [-1.0, -2.0, -4.0, -8.0]
    _, tensors, info = of_delta(tmp_path / "tiny.gguf", "qwen35", {"attn_norm": HIDDEN}, decays=decays)
    tensor = tensors["model.layers.0.linear_attn.A_log"]
    assert info.tensors[tensor.name] == ((4,), "float32") and tensor.encoding == "plain"
    expected = np.log(np.array([1, 4, 2, 8], dtype=np.float32))  # dealt out, too
    for values in (tensor.dense(torch.float32), tensor.raw()):
        np.testing.assert_allclose(values.numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("modules", "keys", "message"),
    [
        ({"attn_qkv": (190, HIDDEN)}, {}, r"190 rows of tensor blk\.0\.attn_qkv\.weight do not go with its metadata"),
        ({"ssm_out": (HIDDEN, 160)}, {}, r"160 columns of tensor blk\.0\.ssm_out\.weight do not go"),
        ({"attn_norm": HIDDEN}, {"ssm.time_step_rank": 3}, "3 heads of values do not go with 2 heads of keys"),
        ({"attn_norm": HIDDEN}, {"ssm.conv_kernel": None}, r"qwen35\.ssm\.conv_kernel is missing"),
    ],
)
def test_sizes_of_linear_attention_that_contradict_each_other_are_named(tmp_path, modules, keys, message):
    with pytest.raises(CheckpointError, match=message) as caught:
        of_delta(tmp_path / "tiny.gguf", "qwen35", modules, **keys)
    assert caught.value.code == "CORE-M141"


@pytest.mark.parametrize(
    ("attends", "message"),
    [((0, 2, 3), r"those that attend \(\[0, 2, 3\]\) are not every so many-th one"), ((), r"attend \(\[\]\)")],
)
def test_layers_of_jamba_that_come_at_no_regular_distance_are_refused(tmp_path, attends, message):
    writer = gguf.GGUFWriter(tmp_path / "tiny.gguf", "jamba")
    sizes = {"context_length": 64, "embedding_length": HIDDEN, "block_count": 4, "feed_forward_length": 64}
    spaces = {"ssm.inner_size": 128, "ssm.state_size": 8, "ssm.conv_kernel": 4, "ssm.time_step_rank": 4}
    for key, value in {**sizes, **spaces, "attention.head_count": HEADS}.items():
        writer.add_uint32(f"jamba.{key}", value)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_head_count_kv([HEADS if layer in attends else 0 for layer in range(4)])
    writer.add_tensor("token_embd.weight", np.zeros((VOCAB, HIDDEN), dtype=np.float32))
    for layer in attends:
        writer.add_tensor(f"blk.{layer}.attn_q.weight", np.zeros((HIDDEN, HIDDEN), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(CheckpointError, match=message) as caught:
        GGUFReader().inspect(tmp_path / "tiny.gguf")
    assert caught.value.code == "CORE-M140"


def write(path, arch, modules, kind, decays=None, **keys):
    """Write a file of one layer whose matrices are of a block type, where their rows consist of blocks."""
    writer = gguf.GGUFWriter(path, arch)
    for key, value in keys.items():
        if key == "head_count_kv":
            writer.add_head_count_kv(value)
            writer.add_layer_norm_rms_eps(1e-5)
        elif value is not None:
            writer.add_uint32(f"{arch}.{key}", value)
    if decays is not None:
        writer.add_tensor("blk.0.ssm_a", np.array(decays, dtype=np.float32))
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
        if values.ndim == 1 or values.shape[1] % 32:
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
        if values.ndim == 2 and not values.shape[1] % 32
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
