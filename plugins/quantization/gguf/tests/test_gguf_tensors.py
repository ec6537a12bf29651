"""Tensors: names, shapes, row order, values."""

import gguf
import numpy as np
import pytest
import torch
from core_plugin_gguf.reader import GGUFReader
from gguf import GGMLQuantizationType as Kind

from core.api.errors import CheckpointError

READER = GGUFReader()


def read(path):
    return {tensor.name: tensor for tensor in READER.tensors(path, lambda size: None)}


@pytest.mark.covers("QUANT-12", "MODEL-02")
@pytest.mark.parametrize("arch", ["llama", "qwen2", "qwen3", "gemma2", "gemma3"])
def test_what_was_written_is_read(tiny, arch):
    made = tiny(arch)
    tensors = read(made.path)
    assert set(tensors) == set(made.expected)
    for name, expected in made.expected.items():
        tensor = tensors[name]
        assert (tensor.shape, tensor.encoding) == (expected.shape, "plain")
        if tensor.place.offset:  # gemma's norms, stored with 1 added
            expected = (expected + np.float32(1)) - np.float32(1)
        np.testing.assert_array_equal(tensor.dense(torch.float32).numpy(), expected)
        np.testing.assert_array_equal(tensor.raw().numpy(), expected)
        rounded = torch.from_numpy(expected).to(torch.bfloat16)
        assert torch.equal(tensor.dense(torch.bfloat16), rounded)


@pytest.mark.parametrize("kind", [Kind.F16, Kind.BF16, Kind.Q4_0, Kind.Q5_1, Kind.Q8_0])
def test_encoded_rows_keep_their_order(tiny, kind):
    made = tiny("llama", kind=kind)
    for name, tensor in read(made.path).items():
        expected = made.expected[name]
        if expected.ndim == 1:
            continue
        stored = np.ascontiguousarray(gguf.quants.quantize(expected, kind))
        raw = tensor.raw()
        if tensor.encoding == "plain":
            assert raw.dtype == {Kind.F16: torch.float16, Kind.BF16: torch.bfloat16}[kind]
            assert raw.shape == expected.shape
        else:
            assert tensor.encoding == f"gguf:{kind.name}"
            np.testing.assert_array_equal(raw.numpy(), stored)
        dense = gguf.quants.dequantize(stored.view(np.uint8), kind).reshape(expected.shape)
        np.testing.assert_array_equal(tensor.dense(torch.float32).numpy(), dense)


def test_biases_of_interleaved_projections(tiny):
    """Llama's converter reorders biases like rows; a projection without them is told apart by name alone."""
    bias = np.arange(64, dtype=np.float32)
    stored = bias.reshape(4, 2, 8).swapaxes(1, 2).reshape(-1)
    made = tiny("llama", extend=lambda writer: writer.add_tensor("blk.0.attn_q.bias", stored))
    tensor = read(made.path)["model.layers.0.self_attn.q_proj.bias"]
    np.testing.assert_array_equal(tensor.dense(torch.float32).numpy(), bias)
    np.testing.assert_array_equal(tensor.raw().numpy(), bias)


def test_rows_that_do_not_fit_the_heads(tiny):
    odd = np.zeros(12, dtype=np.float32)
    made = tiny("llama", extend=lambda writer: writer.add_tensor("blk.1.attn_q.bias", odd))
    with pytest.raises(CheckpointError, match=r"12 rows of tensor blk\.1\.attn_q\.bias"):
        read(made.path)


def test_unknown_tensors_keep_their_name(tiny):
    made = tiny(extend=lambda writer: writer.add_tensor("blk.0.surprise.weight", np.ones((2, 2), dtype=np.float32)))
    assert "blk.0.surprise.weight" in read(made.path)


def test_values_are_the_callers_own(tiny):
    tensor = read(tiny("llama").path)["model.norm.weight"]
    first = tensor.dense(torch.float32)
    first.zero_()
    assert tensor.dense(torch.float32).abs().sum() > 0


def test_raw_does_not_copy(tiny):
    tensors = read(tiny("llama", kind=Kind.Q8_0).path)
    name = "model.layers.0.mlp.down_proj.weight"
    assert tensors[name].raw().data_ptr() == tensors[name].raw().data_ptr()


def test_progress_counts_every_byte(tiny):
    path, consumed = tiny("llama", kind=Kind.Q4_0).path, []
    list(READER.tensors(path, consumed.append))
    assert sum(consumed) == READER.inspect(path).num_bytes


@pytest.mark.covers("QUANT-12")
def test_demo_weights_equal_transformers(demo_file, reference):
    weights = reference.state_dict()
    checked = 0
    for tensor in READER.tensors(demo_file, lambda size: None):
        expected = weights[tensor.name]
        assert tensor.shape == tuple(expected.shape)
        if "layers." not in tensor.name or ".7." in tensor.name or ".29." in tensor.name:
            torch.testing.assert_close(tensor.dense(torch.float32), expected, rtol=0, atol=1e-6)
            checked += 1
    assert checked == 20
