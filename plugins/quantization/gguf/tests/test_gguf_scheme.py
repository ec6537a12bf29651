"""The quantization method: mixed encodings in one merged layer."""

import numpy as np
import pytest
import torch
from core_plugin_gguf.reader import GGUFReader
from core_plugin_gguf.scheme import GGUFScheme
from gguf import GGMLQuantizationType as Kind

from core.api.quantization import LayerSite, QuantContext


class Declared:
    """A `ParamBuilder` that remembers."""

    def __init__(self):
        self.params = {}

    def declare(self, name, shape, dtype, *, rows=()):
        self.params[name] = (shape, dtype, tuple(rows))


def make(site, dtype=torch.float32):
    return GGUFScheme(QuantContext(device=torch.device("cpu"), dtype=dtype, checkpoint={})).for_site(site)


def test_declares_stacked_parts_and_bias():
    site = LayerSite("linear", "model.layers.0.self_attn", 64, (("q_proj", 64), ("k_proj", 32)), bias=True)
    declared = Declared()
    make(site, torch.bfloat16).declare(declared)
    assert declared.params == {
        "weight": ((96, 64), torch.bfloat16, (("q_proj", 64), ("k_proj", 32))),
        "bias": ((96,), torch.bfloat16, (("q_proj", 64), ("k_proj", 32))),
    }


@pytest.mark.covers("QUANT-01", "QUANT-12")
def test_a_merged_layer_computes_with_parts_of_different_encodings(tiny):
    parts = (("gate_proj", 96), ("up_proj", 96))
    site = LayerSite("linear", "model.layers.0.mlp", 64, parts)
    layer = make(site)
    pieces, expected = [], []
    for (part, rows), kind in zip(parts, (Kind.Q8_0, Kind.F16), strict=True):
        made = tiny("qwen3", kind=kind, name=f"{part}.gguf")
        name = f"model.layers.0.mlp.{part}.weight"
        tensor = next(tensor for tensor in GGUFReader().tensors(made.path, lambda size: None) if tensor.name == name)
        pieces.append(layer.decode("weight", tensor))
        assert pieces[-1].shape == (rows, 64)
        expected.append(made.expected[name])
    params = layer.finalize({"weight": torch.cat(pieces)})
    x = torch.randn(5, 64, generator=torch.Generator().manual_seed(0))
    reference = x @ torch.from_numpy(np.concatenate(expected)).T
    torch.testing.assert_close(layer.apply(x, params), reference, rtol=0.05, atol=0.2)
    assert torch.equal(layer.finalize(params)["weight"], params["weight"])


def test_bias_and_embedding():
    weight, bias = torch.randn(6, 4), torch.randn(6)
    x = torch.randn(3, 4)
    linear = make(LayerSite("lm_head", "lm_head", 4, (("", 6),), bias=True))
    torch.testing.assert_close(linear.apply(x, {"weight": weight, "bias": bias}), x @ weight.T + bias)
    embedding = make(LayerSite("embedding", "model.embed_tokens", 4, (("", 6),)))
    assert torch.equal(embedding.apply(torch.tensor([5, 0]), {"weight": weight}), weight[[5, 0]])
