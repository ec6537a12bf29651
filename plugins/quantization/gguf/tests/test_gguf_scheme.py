"""The format: blocks as they are stored, mixed in one merged layer, and plain numbers in their place."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from core_plugin_gguf.blocks import decode
from core_plugin_gguf.formats import DECODABLE, FLOATS, refine
from core_plugin_gguf.kinds import SIZES, NewerKind
from core_plugin_gguf.reader import GGUFReader
from core_plugin_gguf.scheme import GGUFFormat
from gguf import GGMLQuantizationType as Kind

from core.api import PLAIN, LayerSite, ProbeResult, QuantContext, QuantRequest, WeightForm
from core_testing.layers import PlainTensor, fill, make_layer

PARTS = (("gate_proj", 96), ("up_proj", 96))
MLP = LayerSite("linear", "model.layers.0.mlp", 64, PARTS)


def make(tensors):
    return GGUFFormat(QuantContext(torch.device("cpu"), torch.float32, {"tensors": tensors}))


def stored(tiny, part, kind):
    made = tiny("qwen3", kind=kind, name=f"{part}.gguf")
    name = f"model.layers.0.mlp.{part}.weight"
    tensors = GGUFReader().tensors(made.path, lambda size: None)
    return next(tensor for tensor in tensors if tensor.name == name), made.expected[name]


@pytest.mark.covers("QUANT-01", "QUANT-12")
def test_a_merged_layer_computes_with_parts_of_different_encodings(tiny):
    kinds = (Kind.Q8_0, Kind.F16)
    form = make({f"model.layers.0.mlp.{part}.weight": kind.name for (part, _), kind in zip(PARTS, kinds, strict=True)})
    pieces = [stored(tiny, part, kind) for (part, _), kind in zip(PARTS, kinds, strict=True)]
    layer = make_layer(form, MLP)
    assert [one.key for one in layer.group.product.place.forms] == ["gguf:Q8_0@as_is", "plain@as_is"]
    fill(layer.group, [tensor for tensor, _ in pieces])
    x = torch.randn(5, 64, generator=torch.Generator().manual_seed(0))
    reference = x @ torch.from_numpy(np.concatenate([values for _, values in pieces])).T
    torch.testing.assert_close(layer(x), reference, rtol=0.05, atol=0.2)


@pytest.mark.parametrize("kind", sorted(DECODABLE), ids=lambda kind: kind.name)
def test_a_type_says_how_many_bytes_hold_how_many_inputs(kind):
    form, site = make({"x.weight": kind.name}), LayerSite("linear", "x", 512, (("", 8),))
    one, *further = form.stored(site, "")
    assert [each.suffix for each in further] == (["scale"] if kind.name == "NVFP4" else [])
    size, num_bytes = (1, 1) if kind in FLOATS else SIZES[kind]
    assert one.elements(8, 512) == (8, 512 // size * num_bytes)
    assert (one.encoding, form.form(site, "")) == (
        ("plain", PLAIN) if kind in FLOATS else (f"gguf:{kind.name}", WeightForm(codes=f"gguf:{kind.name}"))
    )


@pytest.mark.covers("WT-01")
def test_an_update_brings_plain_numbers_for_a_layer_in_blocks(tiny):
    tensor, _ = stored(tiny, "up_proj", Kind.Q4_0)
    site = LayerSite("linear", "model.layers.0.mlp.up_proj", 64, (("", 96),))
    form = make({tensor.name: "Q4_0"})
    layer, values = make_layer(form, site), torch.randn(96, 64)
    fill(layer.group, [tensor])
    assert torch.equal(layer.params["weight"], tensor.dense(torch.float32))
    fill(layer.group, [PlainTensor(tensor.name, values)])
    assert torch.equal(layer.params["weight"], values)
    assert form.read(site, "", {"weight": PlainTensor(tensor.name, values)}).form == PLAIN


def test_types_that_are_not_decoded_are_refused_while_methods_are_chosen():
    def verdict(found):
        return refine(QuantRequest("gguf", "cpu", "auto", {"undecodable": found}), ProbeResult(available=True))

    assert verdict({}).ok
    reason = "blk.0.attn_q.weight has type I32, which is not decoded"
    assert verdict({"I32": "blk.0.attn_q.weight"}).reasons == (reason,)


@dataclass
class Blocks:
    """A tensor in blocks."""

    name: str
    blocks: torch.Tensor
    shape: tuple[int, int]
    encoding: str = "gguf:NVFP4"

    def raw(self):
        return self.blocks

    def dense(self, dtype):
        return decode(self.blocks, NewerKind.NVFP4, self.shape[1], dtype)


@pytest.mark.covers("QUANT-12")
def test_a_matrix_of_nvfp4_may_have_a_scale_besides():
    rng = torch.Generator().manual_seed(3)
    weight = Blocks("x.weight", torch.randint(0, 120, (8, 2 * 36), generator=rng, dtype=torch.uint8), (8, 128))
    for further, factor in (([], 1.0), ([PlainTensor("x.scale", torch.tensor([0.25]))], 0.25)):
        layer = make_layer(make({"x.weight": "NVFP4"}), LayerSite("linear", "x", 128, (("", 8),)))
        fill(layer.group, [weight, *further])
        torch.testing.assert_close(layer.params["weight"], weight.dense(torch.float32) * factor)


def test_a_scale_besides_is_named_as_its_matrix_and_one_for_activations_left_out(tiny):
    def extend(writer):
        writer.add_tensor("blk.0.attn_q.scale", np.array([0.25], np.float32))
        writer.add_tensor("blk.0.attn_q.input_scale", np.array([3.0], np.float32))

    names = [one.name for one in GGUFReader().tensors(tiny(extend=extend).path, lambda size: None)]
    assert [name for name in names if "scale" in name] == ["model.layers.0.self_attn.q_proj.scale"]
