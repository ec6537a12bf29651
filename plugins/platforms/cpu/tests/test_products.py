"""Products beside the reference product: every form, mixed layers, updates, shared storage, options."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from core_plugin_cpu.manifest import CPU_LINEAR
from core_plugin_cpu.native import gemm, library
from core_plugin_cpu.native.blocks import BITS
from core_plugin_cpu.native.packed import Format, quantize_int8
from core_plugin_cpu.native.record import record
from core_plugin_cpu.products.refine import product

from core.api import CheckpointError, KernelRequest, LayerSite, ProbeResult, WeightForm
from core_testing.conformance.tools.parts import plain_part

from .weights import (
    BLOCKS,
    FORMS,
    FP4,
    GROUPS,
    MXFP4,
    NF4,
    NVFP4,
    OPENED,
    UNROUNDED,
    K,
    e5m2,
    error,
    expected,
    float8,
    int4,
    int8,
    make,
    packed,
    weights,
)

pytestmark = pytest.mark.skipif(not library.available(), reason=f"no native library: {library.reason()}")

QKV = LayerSite("linear", "layer.attn", K, (("q_proj", 48), ("k_proj", 16), ("v_proj", 24)), bias=True)
ONE = LayerSite("linear", "layer.attn", K, (("", 48),))
EMBEDDING = LayerSite("embedding", "embed", K, (("", 50),))
BF16 = 0.004
"""Results are rounded to bfloat16, and weights that are opened."""

NOISE = 0.012
"""Activations rounded to 8 bits, 32 to a scale, are off by 1/254 of their block's largest magnitude at most. For normal
ones that is half a percent of the result's 2-norm; plus the rounding of results to bfloat16."""


def q(kind):
    return WeightForm(codes=f"gguf:{kind}")


def forms_of(*forms):
    return pytest.mark.parametrize("form", forms, ids=lambda form: form.key)


def layer(form, x, name="cpu_linear", site=QKV, **settings):
    product = make(name, site, [form] * len(site.parts), x.dtype, **settings)
    parts = [weights(form, rows, seed=seed, bias=site.bias) for seed, (_, rows) in enumerate(site.parts)]
    return product, parts


@pytest.mark.covers("QUANT-04", "QUANT-12")
@forms_of(*FORMS)
def test_every_form_is_multiplied_as_the_reference_product_does(isa, form):
    for tokens in (0, 1, 3, 40):
        x = torch.randn(tokens, K).bfloat16()
        product, parts = layer(form, x)
        found = product.apply(x, packed(product, parts))
        assert found.shape == (tokens, 88) and found.dtype == torch.bfloat16
        if tokens:
            assert error(found, expected(product, parts, x)) < (BF16 if form in UNROUNDED else NOISE)


@forms_of(*FORMS)
def test_computing_in_float32_rounds_nothing_but_what_the_form_says(isa, form):
    x = torch.randn(7, K)
    product, parts = layer(form, x, "dense")
    assert error(product.apply(x, packed(product, parts)), expected(product, parts, x)) < 1e-5


@forms_of(WeightForm(), q("Q4_0"), q("Q6_K"), int4(32, ordered=True), int8(), float8(16, 128), MXFP4, NVFP4, NF4)
def test_packing_is_repeatable_in_any_order_of_parts_and_rows_of_inputs_may_lie_apart(form):
    x = torch.randn(5, 2 * K).bfloat16()[:, :K]
    product, parts = layer(form, x)
    first, second = packed(product, parts), packed(product, parts, (2, 0, 1))
    assert first.keys() == second.keys() == product.sizes().keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert torch.equal(product.apply(x, first), product.apply(x.contiguous(), first))


MIXED = {
    "blocks of two types": [q("Q4_K"), q("Q4_K"), q("Q6_K")],
    "blocks and plain numbers": [q("Q5_1"), WeightForm(), q("Q8_0")],
    "a type without a kernel": [q("TQ2_0"), q("Q8_0"), q("Q8_0")],
    "numbers of a table": [q("IQ4_XS"), q("IQ4_NL"), q("Q8_0")],
    "groups and plain numbers": [int4(64, zeros=True), WeightForm(), int4(128)],
    "orders and plain numbers": [int4(64, ordered=True), WeightForm(), int4(32, zeros=True, ordered=True)],
    "int8 and plain numbers": [int8(activations="int8:token"), WeightForm(), int8()],
    "float8 and others": [float8(0, activations="float8:tensor"), float8(16, 128), q("Q4_0")],
    "four-bit floats and others": [NVFP4, MXFP4, float8()],
    "both kinds of float8": [e5m2(16, 128), e5m2(), float8()],
    "tables and others": [NF4, NF4.replace(inputs=128), FP4],
    "blocks of few bits": [q("Q1_0"), q("NVFP4"), NVFP4],
}
KINDS = {
    "blocks of two types": [Format.Q4_K, Format.Q6_K],
    "blocks and plain numbers": [Format.Q5_1, Format.BF16, Format.Q8_0],
    "a type without a kernel": [Format.BF16, Format.Q8_0],
    "numbers of a table": [Format.IQ4_XS, Format.IQ4_NL, Format.Q8_0],
    "groups and plain numbers": [Format.Q4_64, Format.BF16, Format.Q4_0],
    "orders and plain numbers": [Format.Q4_0, Format.BF16, Format.Q4_1],
    "int8 and plain numbers": [Format.W8A8, Format.BF16, Format.W8A16],
    "float8 and others": [Format.E4M3, Format.E4M3_128, Format.Q4_0],
    "four-bit floats and others": [Format.NVFP4, Format.MXFP4, Format.E4M3],
    "both kinds of float8": [Format.E5M2_128, Format.E5M2, Format.E4M3],
    "tables and others": [Format.NF4, Format.FP4],
    "blocks of few bits": [Format.Q1_0, Format.NVFP4],
}


@pytest.mark.covers("QUANT-12")
@pytest.mark.parametrize("tokens", [1, 5, 40])
@pytest.mark.parametrize("case", MIXED)
def test_parts_of_different_forms_are_one_layer(case, tokens):
    product = make("cpu_linear", QKV, MIXED[case])
    parts = [weights(form, rows, bias=True) for form, (_, rows) in zip(MIXED[case], QKV.parts)]
    assert [run.kind for run in product._joined] == KINDS[case]
    x = torch.randn(tokens, K).bfloat16()
    assert error(product.apply(x, packed(product, parts)), expected(product, parts, x)) < NOISE


@forms_of(*(form for form in BLOCKS if form.codes not in OPENED), int4(64), int4(128, zeros=True), int8())
def test_plain_weights_of_an_update_are_rounded_to_the_layers_form(form):
    product = make("cpu_linear", ONE, [form])
    x = torch.randn(4, K).bfloat16()
    for _ in range(2):
        values = torch.randn(48, K)
        found = product.apply(x, packed(product, [plain_part(values)]))
        bits = form.bits if form.codes == "int" else BITS[form.codes.removeprefix("gguf:")]
        allowed = {1: 0.62, 2: 0.55, 3: 0.25, 4: 0.14, 5: 0.06, 6: 0.035, 8: NOISE}[bits]
        assert error(found, x.float() @ values.T) < allowed


@pytest.mark.covers("QUANT-04")
@forms_of(*(form for form in GROUPS if form.ordered))
@pytest.mark.parametrize("alike", [True, False])
def test_parts_whose_inputs_are_in_one_order_are_one_call(alike, form):
    product = make("cpu_linear", QKV, [form] * 3)
    parts = [weights(form, rows, seed=seed, bias=True) for seed, (_, rows) in enumerate(QKV.parts)]
    if alike:
        for part in parts:
            part.group_of = parts[0].group_of
            part.decode = None
        parts = [replace(part, decode=weights_of(part)) for part in parts]
    params = packed(product, parts)
    assert len(params["order"]) == (1 if alike else 3)
    x = torch.randn(9, K).bfloat16()
    program, found = record(lambda: product.apply(x, params))
    assert program.count == (1 if alike else 3)
    assert error(found, expected(product, parts, x)) < NOISE


def weights_of(part):
    values = (part.codes.float() - (0 if part.zeros is None else part.zeros[:, part.group_of].float())) * part.scales[
        :, part.group_of
    ]
    return lambda dtype: values.to(dtype)


def test_finish_leaves_what_it_was_given():
    form = int4(32, ordered=True)
    product = make("cpu_linear", QKV, [form] * 3)
    parts = [weights(form, rows, bias=True) for _, rows in QKV.parts]
    params = {name: torch.zeros(shape, dtype=dtype) for name, (shape, dtype) in product.sizes().items()}
    for index, part in enumerate(parts):
        product.pack(part, index, params)
    before = {name: value.clone() for name, value in params.items()}
    product.finish(params)
    assert params.keys() == before.keys() and all(torch.equal(params[name], before[name]) for name in before)


def test_groups_of_unequal_sizes_are_refused():
    product = make("cpu_linear", ONE, [int4(32, ordered=True)])
    part = weights(int4(32, ordered=True), 48)
    part.group_of[part.group_of == 1] = 0
    with pytest.raises(CheckpointError, match="256 inputs in groups of 32") as caught:
        packed(product, [part])
    assert caught.value.code == "CORE-M180"


@forms_of(*FORMS)
def test_an_embedding_and_its_tied_head_read_the_same_bytes(isa, form):
    product = make("cpu_lookup", EMBEDDING, [form], head="checkpoint")
    part = weights(form, 50)
    params = packed(product, [part])
    ids = torch.tensor([49, 0, 17, 17])
    rows = product.look_up(ids, params)
    assert rows.dtype == torch.bfloat16
    assert error(rows, part.dense(torch.float32)[ids]) < 0.003  # half-precision scales, rounded to bfloat16
    x = torch.randn(3, K).bfloat16()
    logits = product.apply(x, params)
    assert logits.dtype == torch.float32, "rounded to bfloat16, likely tokens would often be equals"
    assert error(logits, expected(product, [part], x)) < NOISE


@forms_of(*(form for form in BLOCKS if form.codes not in OPENED))
def test_rows_of_blocks_are_decoded_as_the_file_means_them(form):
    part, kind = weights(form, 20), Format[form.codes.removeprefix("gguf:")]
    found = gemm.lookup(gemm.pack_blocks(part.codes, kind, K), torch.arange(20), torch.float32)
    torch.testing.assert_close(found, part.dense(torch.float32), rtol=1e-6, atol=1e-5)


@pytest.mark.covers("QUANT-04")
@pytest.mark.parametrize("asked", [False, True])
@forms_of(q("Q4_0"), int4(64, zeros=True), int4(64), int4(64, ordered=True), MXFP4, NVFP4)
def test_what_a_row_gives_is_independent_of_others_where_it_is_asked_for(isa, form, asked):
    product = make("cpu_linear", ONE, [form], batch_invariant=asked)
    params = packed(product, [weights(form, 48)])
    x = torch.randn(40, K).bfloat16()
    alone = torch.cat([product.apply(x[row : row + 1], params) for row in range(len(x))])
    assert torch.equal(product.apply(x, params), alone) == asked
    assert error(product.apply(x, params), alone) < NOISE


@pytest.mark.covers("QUANT-04")
def test_how_far_activations_are_rounded_is_an_option(isa):
    x, part = torch.randn(9, K).bfloat16(), weights(q("Q8_0"), 48)
    noise = {}
    for rounding in ("int8", "int16", "auto"):
        product = make("cpu_linear", ONE, [q("Q8_0")], activations=rounding)
        params = packed(product, [part])
        noise[rounding] = [error(product.apply(some, params), expected(product, [part], some)) for some in (x[:1], x)]
    assert min(noise["int8"]) > 0.003  # and the rounding of results, 0.0017
    assert max(noise["int16"]) < 0.0025
    assert noise["auto"] == [noise["int16"][0], noise["int16" if isa == "amx" else "int8"][1]]


@pytest.mark.covers("QUANT-05")
@pytest.mark.parametrize("activations", ["as_is", "int8:token"])
def test_int8_with_a_scale_for_each_output(isa, activations):
    form = int8(activations=activations)
    product = make("cpu_linear", ONE, [form])
    values = torch.randn(48, K)
    codes, scales = quantize_int8(values)
    part = replace(weights(form, 48), codes=codes, scales=scales, decode=lambda dtype: (codes * scales).to(dtype))
    x = torch.randn(9, K).bfloat16()
    found = product.apply(x, packed(product, [part]))
    assert error(found, x.float() @ (codes * scales).T) < (NOISE if activations == "int8:token" else BF16)


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
    native = gemm.pack_groups(codes, scales, -zeros * scales, order=order)
    for dtype in (torch.float32, torch.bfloat16):
        x = torch.randn(tokens, k).to(dtype)
        assert error(gemm.linear(x, native), x.float() @ weight.T) < NOISE


def test_groups_that_are_no_whole_blocks_are_opened():
    def kind(form, inputs):
        return make("cpu_linear", replace(ONE, in_features=inputs), [form])._packings[0].kind

    assert kind(int4(32, zeros=True), 64) == Format.Q4_1
    assert kind(int4(64), 64) == Format.Q4_0
    assert kind(int4(0, zeros=True), 192) == Format.Q4_64
    assert kind(int4(16, zeros=True), 64) == Format.BF16
    assert kind(int4(64, zeros=True), 96) == Format.BF16
    assert kind(int8(inputs=32, zeros=True), 64) == Format.BF16
    with pytest.raises(ValueError, match="whole blocks"):
        gemm.pack_groups(torch.zeros(16, 48, dtype=torch.uint8), torch.ones(16, 3), torch.ones(16, 3))


@pytest.mark.parametrize(
    ("form", "inputs", "reason"),
    [
        (int4(64), 256, ""),
        (int4(0, zeros=True), 96, ""),
        (int4(48), 96, "groups of 48 inputs are no whole blocks of 32"),
        (int4(0), 80, "groups of 80 inputs are no whole blocks of 32"),
        (int4(64), 96, "96 inputs are no whole groups of 64"),
        (WeightForm(), 80, ""),
        (int8(inputs=48), 96, "weights of the form"),
        (float8(0, activations="float8:tensor"), 80, ""),
        (float8(128, 128, activations="float8:128"), 200, ""),
        (e5m2(), 80, ""),
        (e5m2(16, 48), 96, "scales of 48 inputs are of no whole blocks of 32"),
        (MXFP4, 96, ""),
        (NF4, 200, ""),
        (FP4.replace(inputs=128), 256, ""),
        (NF4.replace(inputs=32), 64, "scales of 32 inputs are of no whole groups of 64"),
        (NF4.replace(inputs=0), 64, "scales of 64 inputs are of no whole groups of 64"),
        (q("MXFP4"), 64, ""),
        (q("Q1_0"), 128, ""),
        (q("Q2_K"), 256, "weights of the form"),
        (NVFP4, 80, "80 inputs are no whole blocks of 32"),
        (float8(16, 48), 96, "scales of 48 inputs are of no whole blocks of 32"),
    ],
)
def test_selection_knows_which_groups_have_a_kernel(form, inputs, reason):
    dims, facts = {"inputs": inputs, "outputs": 48}, {"kind": "linear", "method": "none"}
    request = KernelRequest(op="linear", device="cpu", dtype="bfloat16", dims=dims, form=form.key, facts=facts)
    found = [*CPU_LINEAR.check(request).reasons, *product(request, ProbeResult(available=True)).reasons]
    assert reason in found[0] if reason else not found
