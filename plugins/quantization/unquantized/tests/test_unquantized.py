"""Plain weights, and weights that are rounded to 8 bits while they are read."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from core_plugin_unquantized.int8 import Int8
from core_plugin_unquantized.manifest import INT8, NONE
from core_plugin_unquantized.options import decodable
from core_plugin_unquantized.plain import Plain

from core.api import PLAIN, LayerSite, ProbeResult, QuantContext, QuantRequest
from core.ops.rounding import rounded
from core_testing.layers import PlainTensor, fill, make_layer

PARTS = (("gate_proj", 3), ("up_proj", 5))
MLP = LayerSite("linear", "mlp", 4, PARTS, bias=True)


def context(dtype=torch.float32, **options):
    return QuantContext(torch.device("cpu"), dtype, {}, options)


def weights(site, seed=0):
    rng = torch.Generator().manual_seed(seed)
    made = {
        f"{site.module(name)}.weight": torch.randn(rows, site.in_features, generator=rng) for name, rows in site.parts
    }
    if site.bias:
        made |= {f"{site.module(name)}.bias": torch.randn(rows, generator=rng) for name, rows in site.parts}
    return made


def loaded(form, site, values):
    layer = make_layer(form, site)
    fill(layer.group, [PlainTensor(*pair) for pair in values.items()])
    return layer


@pytest.mark.parametrize(
    "site", [MLP, LayerSite("linear", "x", 4, (("", 6),)), LayerSite("lm_head", "h", 4, (("", 6),))]
)
def test_plain_weights_are_stacked_and_multiplied(site):
    values = weights(site)
    weight = torch.cat([values[f"{site.module(name)}.weight"] for name, _ in site.parts])
    bias = torch.cat([values[f"{site.module(name)}.bias"] for name, _ in site.parts]) if site.bias else 0
    x = torch.randn(2, 4)
    torch.testing.assert_close(loaded(Plain(context()), site, values)(x), x @ weight.T + bias)


def test_an_embedding_looks_rows_up():
    site = LayerSite("embedding", "embed", 4, (("", 6),))
    values = weights(site)
    layer = loaded(Plain(context()), site, values)
    assert torch.equal(layer(torch.tensor([5, 0, 5])), values["embed.weight"][[5, 0, 5]])


class Encoded(PlainTensor):
    """A tensor that the checkpoint has in codes."""

    encoding = "codes"


@pytest.mark.parametrize(("kind", "read"), [(PlainTensor, torch.bfloat16), (Encoded, torch.float32)])
def test_values_stay_as_stored_and_encoded_ones_come_in_the_compute_dtype(kind, read):
    site, tensor = LayerSite("linear", "x", 2, (("", 2),)), kind("x.weight", torch.ones(2, 2, dtype=torch.bfloat16))
    part = Plain(context()).read(site, "", {"weight": tensor})
    assert part.form == PLAIN and part.codes.dtype == read
    layer = loaded(Plain(context()), site, {"x.weight": tensor.dense(torch.bfloat16)})
    assert torch.equal(layer(torch.ones(1, 2)), torch.full((1, 2), 2.0))


@pytest.mark.covers("QUANT-12")
@pytest.mark.parametrize("bits", [8, 16])
def test_int8_rounds_linear_layers_by_row(bits):
    form, values = Int8(context(activations=bits)), weights(MLP)
    layer = loaded(form, MLP, values)
    assert [form.form(MLP, name).key for name, _ in PARTS] == [
        f"int8/1xall:float32@{'int8:token' if bits == 8 else 'as_is'}"
    ] * 2
    weight = torch.cat([values[f"{MLP.module(name)}.weight"] for name, _ in PARTS])
    bias = torch.cat([values[f"{MLP.module(name)}.bias"] for name, _ in PARTS])
    scale = weight.abs().amax(1, keepdim=True) / 127
    weight, x = (weight / scale).round() * scale, torch.randn(3, 4)
    expected = (rounded(x, "int8:token") if bits == 8 else x) @ weight.T + bias
    torch.testing.assert_close(layer(x), expected)


@pytest.mark.covers("QUANT-12")
def test_int8_loads_equal_bytes_each_time_and_other_weights_afterwards():
    layer, other = loaded(Int8(context()), MLP, weights(MLP)), weights(MLP, seed=1)
    first = {name: value.clone() for name, value in layer.params.items()}
    fill(layer.group, [PlainTensor(*pair) for pair in weights(MLP).items()])
    assert all(torch.equal(layer.params[name], first[name]) for name in first)
    fill(layer.group, [PlainTensor(*pair) for pair in other.items()])
    assert not torch.equal(layer.params["weight"], first["weight"])


def test_int8_rounds_what_is_stored_encoded_and_a_row_of_zeros():
    class Encoded(PlainTensor):
        encoding = "gguf:Q8_0"

        def raw(self):
            raise AssertionError("these are blocks, not numbers")

    values = torch.randn(5, 4)
    values[2] = 0
    site = LayerSite("linear", "x", 4, (("", 5),))
    plain = Int8(context()).read(site, "", {"weight": PlainTensor("x.weight", values)})
    encoded = Int8(context()).read(site, "", {"weight": Encoded("x.weight", values)})
    assert torch.equal(plain.codes, encoded.codes) and torch.equal(plain.scales, encoded.scales)
    assert plain.codes[2].abs().max() == 0 and plain.scales[2] == 1


@pytest.mark.parametrize("kind", ["embedding", "lm_head"])
def test_int8_keeps_embeddings_and_heads(kind):
    assert Int8(context()).form(LayerSite(kind, "x", 4, (("", 6),)), "") == PLAIN


def test_int8_is_only_used_on_request_and_for_what_can_be_decoded():
    def asked(found):
        return decodable(QuantRequest("gguf", "cpu", "auto", {"undecodable": found}), ProbeResult(available=True))

    assert INT8.on_request and asked({}).ok
    assert asked({"I32": "blk.0.attn_q.weight"}).reasons == ("blk.0.attn_q.weight has type I32, which is not decoded",)


def test_the_manifest_names_the_formats_and_loads_no_torch():
    assert (NONE.name, NONE.methods, INT8.name) == ("none", {"none"}, "int8")
    modules = "core_plugin_unquantized.manifest, core_plugin_unquantized.options"
    code = f"import sys, {modules}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
