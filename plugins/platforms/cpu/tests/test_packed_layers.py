"""Layers that multiply with packed weights: formats side by side, shared storage, updates, groups."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest
import torch
from core_plugin_cpu.awq import AWQScheme
from core_plugin_cpu.dense import DenseScheme
from core_plugin_cpu.gguf import GGUFScheme
from core_plugin_cpu.gptq import GPTQScheme
from core_plugin_cpu.grouped import Grouping
from core_plugin_cpu.int8 import Int8Scheme
from core_plugin_cpu.native import gemm, library
from core_plugin_cpu.native.blocks import FORMATS
from core_plugin_cpu.native.packed import Format, quantize_int8

from core.api import CheckpointError, LayerSite, QuantContext
from core.layers.guard import LayerContext
from core.layers.linear import QuantLayer
from core.testing.layers import fill, make_layer

pytestmark = pytest.mark.skipif(not library.available(), reason=f"no native library: {library.reason()}")

gguf = pytest.importorskip("gguf")
K = 256
QKV = LayerSite("linear", "layer.attn", K, (("q_proj", 48), ("k_proj", 16), ("v_proj", 24)), bias=True)
EMBEDDING = LayerSite("embedding", "embed", K, (("", 50),))
NOISE = 0.012
"""Activations rounded to 8 bits, 32 to a scale, are off by 1/254 of their block's largest magnitude at most. For normal
ones that is half a percent of the result's 2-norm; plus the rounding of results to bfloat16."""


class Stored:
    """A tensor of a checkpoint: plain, or in GGUF blocks."""

    def __init__(self, name, values, kind=""):
        self.name, self.shape = name, tuple(values.shape)
        self.encoding = f"gguf:{kind}" if kind else "plain"
        self._values, self._raw = values, values
        if kind:
            kind = gguf.GGMLQuantizationType[kind]
            stored = gguf.quants.quantize(values.numpy(), kind)
            self._raw = torch.from_numpy(stored)
            self._values = torch.from_numpy(gguf.quants.dequantize(stored, kind))

    def dense(self, dtype):
        return self._values.to(dtype).clone()

    def raw(self):
        return self._raw


def layer(scheme, site, dtype=torch.bfloat16):
    return make_layer(scheme, site, dtype=dtype)[1]


def gguf_scheme(types, dtype=torch.bfloat16):
    return GGUFScheme(QuantContext(torch.device("cpu"), dtype, {"tensors": types}))


def error(found, expected):
    return ((found.float() - expected.float()).norm() / expected.float().norm()).item()


def qkv_tensors(kinds):
    names = [f"{QKV.prefix}.{part}" for part, _ in QKV.parts]
    weights = [
        Stored(f"{name}.weight", torch.randn(rows, K), kind) for name, (_, rows), kind in zip(names, QKV.parts, kinds)
    ]
    return [*weights, *(Stored(f"{name}.bias", torch.randn(rows)) for name, (_, rows) in zip(names, QKV.parts))]


def meant(tensors, suffix):
    return torch.cat([one.dense(torch.float32) for one in tensors if one.name.endswith(suffix)])


@pytest.mark.covers("QUANT-12")
@pytest.mark.parametrize("kinds", [("Q4_0", "Q4_0", "Q4_0"), ("Q4_0", "Q4_0", "Q8_0"), ("Q5_1", "", "Q8_0")])
@pytest.mark.parametrize("tokens", [1, 5, 40])
def test_parts_of_different_types_make_one_layer(kinds, tokens):
    tensors = qkv_tensors(kinds)
    one = layer(gguf_scheme({tensor.name: kind for tensor, kind in zip(tensors, kinds)}), QKV)
    fill(one.group, tensors)
    x = torch.randn(tokens, K).bfloat16()
    expected = x.float() @ meant(tensors, ".weight").T + meant(tensors, ".bias")
    assert error(one(x), expected) < NOISE


def test_a_type_without_a_kernel_is_decoded_and_said_once(caplog):
    with caplog.at_level(logging.INFO):
        scheme = gguf_scheme({"layer.attn.q_proj.weight": "IQ4_NL", "layer.attn.k_proj.weight": "Q8_0", "n": "F32"})
    assert [record.message for record in caplog.records] == [
        "no kernel for GGUF type IQ4_NL: these weights are decoded to torch.bfloat16"
    ]
    one = layer(scheme, replace(QKV, parts=QKV.parts[:2], bias=False))
    kinds = [product.kind for product in one._apply.__self__._products]
    assert kinds == [Format.BF16, Format.Q8_0]


def test_plain_weights_of_an_update_are_rounded_to_the_layers_type():
    for kind in FORMATS:
        site = replace(QKV, parts=(("", 48),), bias=False)
        one = layer(gguf_scheme({"layer.attn.weight": kind}), site)
        x = torch.randn(4, K).bfloat16()
        for _ in range(2):
            values = torch.randn(48, K)
            fill(one.group, [Stored("layer.attn.weight", values)])
            assert error(one(x), x.float() @ values.T) < {"4": 0.12, "5": 0.06, "6": 0.035, "8": NOISE}[kind[1]]


@pytest.mark.parametrize("kind", [*FORMATS, "dense", "float32", "int8"])
def test_an_embedding_and_its_tied_head_share_their_storage(kind, isa):
    dtype = torch.float32 if kind == "float32" else torch.bfloat16
    own, options = {
        "dense": (DenseScheme, {}),
        "float32": (DenseScheme, {}),
        "int8": (Int8Scheme, {"head": "int8"}),
    }.get(kind, (GGUFScheme, {"batch_invariant": True}))
    scheme = own(QuantContext(torch.device("cpu"), dtype, {"tensors": {"embed.weight": kind}}, options))
    embedding, site = layer(scheme, EMBEDDING), replace(EMBEDDING, kind="lm_head")
    head = QuantLayer(site, scheme.for_site(site), embedding.group, LayerContext(torch.device("cpu"), dtype))
    fill(embedding.group, [Stored("embed.weight", torch.randn(50, K))])
    assert embedding.params["weight"].data_ptr() == head.params["weight"].data_ptr()
    rows = embedding(torch.arange(50))
    assert rows.dtype == dtype
    x = torch.randn(3, K).to(dtype)
    logits = head(x)
    assert logits.dtype == torch.float32, "rounded to bfloat16, likely tokens would often be equals"
    assert error(logits, x.float() @ rows.float().T) < (1e-5 if kind == "float32" else NOISE)


@pytest.mark.parametrize("kind", [kind for kind in FORMATS if kind[2:] != "_K"])
def test_rows_are_decoded_as_the_file_means_them(kind):
    stored = Stored("embed.weight", torch.randn(50, K), kind)
    one = layer(gguf_scheme({"embed.weight": kind}), EMBEDDING)
    fill(one.group, [stored])
    ids = torch.tensor([49, 0, 17, 17])
    assert torch.equal(one(ids), stored.dense(torch.bfloat16)[ids])


def test_nested_scales_are_decoded_as_the_file_means_them():
    rng = torch.Generator().manual_seed(0)
    for kind in ("Q4_K", "Q5_K", "Q6_K"):
        raw = torch.randint(0, 256, (20, FORMATS[kind].stored), dtype=torch.uint8, generator=rng)
        scales = torch.rand(20, 2, generator=rng).half().view(torch.uint8)
        raw[:, 208 : 210 if kind == "Q6_K" else 212] if kind == "Q6_K" else raw[:, :4]
        if kind == "Q6_K":
            raw[:, 208:210] = scales[:, :2]
        else:
            raw[:, :4] = scales
        values = gguf.quants.dequantize(raw.numpy(), gguf.GGMLQuantizationType[kind])
        rows = gemm.lookup(gemm.pack_blocks(raw, Format[kind], 256), torch.arange(20), torch.float32)
        torch.testing.assert_close(rows, torch.from_numpy(values), rtol=1e-6, atol=1e-6)


def test_a_tensor_of_another_shape_is_refused():
    one = layer(gguf_scheme({}), replace(QKV, bias=False))
    tensors = [Stored(f"layer.attn.{part}.weight", torch.randn(rows, K - 1)) for part, rows in QKV.parts]
    with pytest.raises(CheckpointError, match=r"\(48, 255\).*needs \(48, 256\)") as caught:
        fill(one.group, tensors)
    assert caught.value.code == "CORE-M122"


@pytest.mark.covers("QUANT-05")
@pytest.mark.parametrize("activations", [8, 16])
def test_any_weight_can_be_rounded_to_int8_while_it_loads(activations, isa):
    context = QuantContext(torch.device("cpu"), torch.bfloat16, {}, {"activations": activations})
    one = layer(Int8Scheme(context), QKV)
    for kinds in (("", "", ""), ("Q8_0", "Q4_0", "")):
        tensors = qkv_tensors(kinds)
        fill(one.group, tensors)
        codes, scales = quantize_int8(meant(tensors, ".weight"))
        x = torch.randn(9, K).bfloat16()
        expected = x.float() @ (codes * scales).T + meant(tensors, ".bias")
        assert error(one(x), expected) < (NOISE if activations == 8 else 0.004)


@pytest.mark.covers("QUANT-04")
@pytest.mark.parametrize("size", [32, 64, 96, 128, 256])
@pytest.mark.parametrize("tokens", [1, 3, 9, 40])
def test_groups_with_scales_and_minima(isa, size, tokens):
    k = 768
    codes = torch.randint(0, 16, (40, k), dtype=torch.uint8)
    scales, zeros = torch.rand(40, k // size) + 0.5, torch.randint(4, 12, (40, k // size))
    order = torch.randperm(k)
    group = torch.arange(k) // size
    weight = torch.empty(40, k)
    weight[:, order] = (codes - zeros[:, group]) * scales[:, group]
    packed = gemm.pack_groups(codes, scales, -zeros * scales, order=order)
    for dtype in (torch.float32, torch.bfloat16):
        x = torch.randn(tokens, k).to(dtype)
        assert error(gemm.linear(x, packed), x.float() @ weight.T) < NOISE


def words(*shape):
    return torch.randint(-(2**31), 2**31, shape, dtype=torch.int32)


@pytest.mark.covers("QUANT-04")
@pytest.mark.parametrize("asked", [False, True])
@pytest.mark.parametrize("method", ["gguf", "awq", "gptq", "gptq act-order"])
def test_what_a_row_gives_is_independent_of_others_where_it_is_asked_for(isa, method, asked):
    rows, size, name = 48, 64, "layer.attn."
    scheme = {"gguf": GGUFScheme, "awq": AWQScheme}.get(method, GPTQScheme)
    shape = (K, rows // 8) if method == "awq" else (K // 8, rows)
    grouped = {"qweight": words(*shape), "qzeros": words(K // size, rows // 8), "scales": torch.rand(K // size, rows)}
    if scheme is GPTQScheme:
        grouped["g_idx"] = torch.arange(K, dtype=torch.int32) // size
    given = {"tensors": {f"{name}weight": "Q4_0"}, "bits": 4, "group_size": size, "desc_act": "order" in method}
    options = {"batch_invariant": True} if asked else {}
    one = layer(
        scheme(QuantContext(torch.device("cpu"), torch.bfloat16, given, options)),
        replace(QKV, parts=(("", rows),), bias=False),
    )
    blocks = [Stored(f"{name}weight", torch.randn(rows, K), "Q4_0")]
    fill(one.group, blocks if method == "gguf" else [Stored(name + key, value) for key, value in grouped.items()])
    x = torch.randn(40, K).bfloat16()
    alone = torch.cat([one(x[row : row + 1]) for row in range(len(x))])
    assert torch.equal(one(x), alone) == asked
    assert error(one(x), alone) < NOISE


@pytest.mark.covers("QUANT-04")
def test_how_far_activations_are_rounded_is_an_option(isa):
    values, x = torch.randn(48, K), torch.randn(9, K).bfloat16()
    site = replace(QKV, parts=(("", 48),), bias=False)
    noise = {}
    for rounding in ("int8", "int16", "auto"):
        given = {"tensors": {"layer.attn.weight": "Q8_0"}}
        one = layer(
            GGUFScheme(QuantContext(torch.device("cpu"), torch.bfloat16, given, {"activations": rounding})), site
        )
        stored = Stored("layer.attn.weight", values, "Q8_0")
        fill(one.group, [stored])
        noise[rounding] = [error(one(some), some.float() @ stored.dense(torch.float32).T) for some in (x[:1], x)]
    assert min(noise["int8"]) > 0.003  # and the rounding of results, 0.0017
    assert max(noise["int16"]) < 0.0025
    assert noise["auto"] == [noise["int16"][0], noise["int16" if isa == "amx" else "int8"][1]]


def grouped(site, orders, *, zeros=7):
    """Tensors of a GPTQ layer in groups of 32, the inputs of each part in an order of its own; and its weight."""
    tensors, weights = [], []
    for (part, rows), order in zip(site.parts, orders):
        group = torch.empty(K, dtype=torch.int32)
        group[order] = torch.arange(K, dtype=torch.int32) // 32
        codes, scales = torch.randint(0, 16, (K, rows)), (torch.rand(K // 32, rows) + 0.5).half()
        packed = sum(codes[nibble::8] << 4 * nibble for nibble in range(8)).to(torch.int32)
        stored_zeros = sum(torch.full((K // 32, rows // 8), zeros) << 4 * nibble for nibble in range(8)).to(torch.int32)
        named = {"qweight": packed, "qzeros": stored_zeros, "scales": scales, "g_idx": group}
        tensors += [Stored(f"{site.prefix}.{part}.{name}", value) for name, value in named.items()]
        weights.append(((codes - zeros - 1) * scales.float()[group.long()]).T)
    return tensors, torch.cat(weights)


@pytest.mark.covers("QUANT-04")
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("alike", [True, False])
def test_parts_whose_inputs_are_in_one_order_are_one_product(alike, symmetric):
    site = replace(QKV, bias=False)
    config = {"bits": 4, "group_size": 32, "desc_act": True, "sym": symmetric}
    one = layer(GPTQScheme(QuantContext(torch.device("cpu"), torch.bfloat16, config)), site)
    shared = torch.randperm(K)
    tensors, weight = grouped(site, [shared if alike else torch.randperm(K) for _ in site.parts])
    fill(one.group, tensors)
    assert len(one.params["order"]) == (1 if alike else 3)
    assert one._apply.__self__._products[0].kind == (Format.Q4_0 if symmetric else Format.Q4_1)
    for tokens in (1, 40):
        x = torch.randn(tokens, K).bfloat16()
        assert error(one(x), x.float() @ weight.T) < NOISE


def test_a_zero_point_off_the_middle_contradicts_symmetry():
    site = replace(QKV, bias=False)
    config = {"bits": 4, "group_size": 32, "sym": True}
    one = layer(GPTQScheme(QuantContext(torch.device("cpu"), torch.bfloat16, config)), site)
    tensors, _ = grouped(site, [torch.arange(K)] * 3, zeros=6)
    with pytest.raises(CheckpointError, match=r"layer.attn.q_proj.*zero points") as caught:
        fill(one.group, tensors)
    assert caught.value.code == "CORE-M160"


def test_groups_that_are_no_whole_blocks_are_decoded():
    assert Grouping(4, 32).format(64, torch.bfloat16) == Format.Q4_1
    assert Grouping(4, 64, symmetric=True).format(64, torch.bfloat16) == Format.Q4_64
    assert Grouping(4, -1).format(192, torch.bfloat16) == Format.Q4_64
    assert Grouping(4, 16).format(64, torch.bfloat16) == Format.BF16
    assert Grouping(8, 32).format(64, torch.bfloat16) == Format.BF16
    with pytest.raises(ValueError, match="whole blocks"):
        gemm.pack_groups(torch.zeros(16, 48, dtype=torch.uint8), torch.ones(16, 3), torch.ones(16, 3))
