"""Weights of floats, e4m3, e5m2 and e2m1, as stored: packed products against float64, and what packing refuses."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from core_plugin_cpu.native import gemm, library
from core_plugin_cpu.native.packed import Format
from core_plugin_cpu.products.tables import VALUES
from hypothesis import given
from hypothesis import strategies as st

from core.api import CheckpointError
from core.ops.products import opened
from core_testing.conformance.tools.parts import plain_part

from .test_native_gemm import assert_close, dtypes, shapes, small
from .test_products import NOISE, ONE, forms_of
from .weights import E5M2, FLOAT4, FLOAT8, FP4, MXFP4, NF4, NVFP4, TABLES, K, e5m2, error, float8, make, packed, weights

pytestmark = pytest.mark.skipif(not library.available(), reason=f"no native library: {library.reason()}")

CODES = {torch.float8_e4m3fn: 0x78, torch.float8_e5m2: 0x7C}
"""Codes of one byte, and the bits of their exponents."""


@pytest.mark.parametrize("kind", CODES, ids=str)
@small
@given(shape=shapes, x_dtype=dtypes, size=st.sampled_from((0, 32, 64, 128)))
def test_float8_weights_with_float_activations(isa, kind, shape, x_dtype, size):
    """Every code there is, those below the least normal number included, in every place of a line."""
    m, n, k = shape
    codes = torch.randint(0, 256, (n, k)).to(torch.uint8)
    codes[~codes.view(kind).float().isfinite()] = 0
    codes[::2] &= 255 - CODES[kind]  # and rows of nothing but small ones
    groups = -(-k // size) if size else 1
    scales, x = torch.rand(n, groups) + 0.1, torch.randn(m, k).to(x_dtype)
    weight = codes.view(kind).double()
    weight = weight * scales.double().repeat_interleave(size or k, dim=1)[:, :k]
    packed_weight = gemm.pack_float8(codes, scales, size, kind)
    # Rows of a prompt meet weights in groups as bfloat16.
    wide = size and x_dtype == torch.bfloat16 and m >= 8 and isa in ("avx512_bf16", "amx")
    y = gemm.linear(x, packed_weight, dtype=torch.float32)
    assert_close(y[:, ::2], (x.double() @ weight.T)[:, ::2], 4e-3 if wide else 4e-6)
    assert_close(y, x.double() @ weight.T, 4e-3 if wide else 4e-6)
    rows = gemm.lookup(packed_weight, torch.arange(n), torch.float32)
    torch.testing.assert_close(rows.double(), weight, rtol=1e-6, atol=0)


@pytest.mark.parametrize("m", [1, 7, 8, 33])
@pytest.mark.parametrize("kind", CODES, ids=str)
def test_each_float8_code_is_its_number(isa, kind, m):
    """Exactly: a product with one input that is 1 gives the weight."""
    codes = torch.arange(256, dtype=torch.uint8)
    codes = codes[codes.view(kind).float().isfinite()]
    for at in range(8):
        some = torch.zeros(len(codes), 8, dtype=torch.uint8)
        some[:, at] = codes
        x = torch.zeros(m, 8, dtype=torch.bfloat16)
        x[:, at] = 1
        y = gemm.linear(x, gemm.pack_float8(some, torch.ones(len(codes), 1), dtype=kind), dtype=torch.float32)
        assert torch.equal(y[m - 1], codes.view(kind).float())


@forms_of(*FLOAT8, *E5M2)
def test_plain_weights_of_an_update_are_rounded_to_float8(form):
    product, values = make("cpu_linear", ONE, [form]), torch.randn(48, K)
    x = torch.randn(4, K).bfloat16()
    # Three bits of mantissa: 2^-4 at most of a number, two thirds of a 2^-5 on average. Two: twice that.
    bound = 0.08 if form in E5M2 else 0.04
    assert error(product.apply(x, packed(product, [plain_part(values)])), x.float() @ values.T) < bound


@forms_of(MXFP4, NVFP4)
def test_plain_weights_of_an_update_are_rounded_to_four_bit_floats(form):
    product, values, x = make("cpu_linear", ONE, [form]), torch.randn(48, K), torch.randn(4, K).bfloat16()
    values[:, :32] = 0
    assert error(product.apply(x, packed(product, [plain_part(values)])), x.float() @ values.T) < 0.14
    # What has been rounded already stays as it is.
    part = weights(form, 48)
    values = part.dense(torch.float32)
    found = product.apply(x, packed(product, [plain_part(values)]))
    assert error(found, x.float() @ values.T) < (NOISE if form is MXFP4 else 0.05)


@forms_of(MXFP4, NVFP4)
def test_scales_of_four_bit_floats_that_are_no_numbers_are_refused(form):
    product, part = make("cpu_linear", ONE, [form]), weights(form, 48)
    part.scales.view(torch.uint8)[47, 3] = 255
    with pytest.raises(CheckpointError, match="scales that are no number"):
        packed(product, [part])


def test_scales_of_mxfp4_may_be_any_power_of_two(isa):
    """Far beyond those of float16."""
    part = weights(MXFP4, 48)
    for exponent in (20, 127, 200):
        some = replace(part, scales=torch.full_like(part.scales, exponent))
        due = some.codes.long()
        due = torch.tensor([0, 1, 2, 3, 4, 6, 8, 12])[due & 7] * torch.where(due > 7, -0.5, 0.5)
        product, x = make("cpu_linear", ONE, [MXFP4]), torch.randn(3, K).bfloat16()
        found = product.apply(x, packed(product, [some])).double()
        wanted = x.double() @ due.double().T * 2.0 ** (exponent - 127)
        assert ((found - wanted).norm() / wanted.norm()).item() < NOISE


@pytest.mark.covers("QUANT-12")
@pytest.mark.parametrize(
    ("kind", "bad", "what"),
    [
        (float8, 0x7F, "codes"),
        (float8, 0xFF, "codes"),
        (float8, None, "scales"),
        (e5m2, 0x7C, "codes"),
        (e5m2, 0xFD, "codes"),
        (e5m2, None, "scales"),
    ],
)
def test_float8_that_is_no_number_is_refused(kind, bad, what):
    form = kind(16, 128)
    product, part = make("cpu_linear", ONE, [form]), weights(form, 48)
    if bad is None:
        part.scales[1, 1] = float("nan")
    else:
        part.codes.view(torch.uint8)[47, 3] = bad
    with pytest.raises(CheckpointError, match=f"48 outputs and 256 inputs has {what} that are no number") as caught:
        packed(product, [part])
    assert caught.value.code == "CORE-M160"


def test_float8_in_blocks_that_have_a_kernel():
    def kind(form, inputs=256):
        return make("cpu_linear", replace(ONE, in_features=inputs), [form])._packings[0].kind

    assert kind(float8(0)) == kind(float8(1, 256)) == kind(float8(128, 128), 96) == Format.E4M3
    assert kind(float8(128, 128)) == kind(float8(1, 256), 640) == kind(float8(64, 128), 200) == Format.E4M3_128
    assert kind(float8(1, 32)) == kind(float8(1, 64)) == kind(float8(1, 96)) == Format.E4M3_32
    assert [kind(form) for form in E5M2] == [Format.E5M2, Format.E5M2_128, Format.E5M2_32]
    assert kind(float8(1, 48)) == kind(e5m2(1, 48)) == Format.BF16
    assert [kind(form) for form in FLOAT4[:2]] == [Format.MXFP4, Format.NVFP4]
    assert [kind(form) for form in TABLES] == [Format.NF4, Format.FP4, Format.NF4]
    assert kind(NF4.replace(inputs=32)) == kind(NF4.replace(inputs=0)) == kind(NF4.replace(outputs=2)) == Format.BF16
    assert kind(NVFP4, 80) == kind(MXFP4.replace(inputs=64)) == Format.BF16


@small
@given(shape=shapes, x_dtype=dtypes, kind=st.sampled_from((Format.NF4, Format.FP4)), size=st.sampled_from((64, 128)))
def test_weights_of_a_table_with_float_activations(isa, shape, x_dtype, kind, size):
    m, n, k = shape
    codes, scales = torch.randint(0, 16, (n, k), dtype=torch.uint8), torch.rand(n, -(-k // size)) + 0.1
    x, weight = torch.randn(m, k).to(x_dtype), torch.tensor(VALUES[kind.name.lower()])[codes.long()].double()
    weight = weight * scales.double().repeat_interleave(size, dim=1)[:, :k]
    packed_weight = gemm.pack_table(kind, codes, scales, size)
    wide = x_dtype == torch.bfloat16 and m >= 8 and isa == "amx"
    y = gemm.linear(x, packed_weight, dtype=torch.float32)
    assert_close(y, x.double() @ weight.T, 4e-3 if wide else 4e-6)
    rows = gemm.lookup(packed_weight, torch.arange(n), torch.float32)
    torch.testing.assert_close(rows.double(), weight, rtol=1e-6, atol=0)


@pytest.mark.parametrize("m", [1, 3, 7])
@forms_of(NF4, FP4)
def test_each_code_of_a_table_is_the_number_that_bitsandbytes_has(isa, form, m):
    """In every place of a line."""
    due = pytest.importorskip("core_plugin_bitsandbytes.conformance").TABLES[form.codes]
    codes = torch.arange(16, dtype=torch.uint8)
    for at in range(64):
        some, x = torch.zeros(16, 64, dtype=torch.uint8), torch.zeros(m, 64, dtype=torch.bfloat16)
        some[:, at], x[:, at] = codes, 1
        kind = Format[form.codes.upper()]
        y = gemm.linear(x, gemm.pack_table(kind, some, torch.ones(16, 1), 64), dtype=torch.float32)
        assert torch.equal(y[m - 1], due.float())


@forms_of(*TABLES)
def test_plain_weights_of_an_update_are_rounded_to_a_table(form):
    product, values, x = make("cpu_linear", ONE, [form]), torch.randn(48, K), torch.randn(4, K).bfloat16()
    values[:, :64] = 0
    assert error(product.apply(x, packed(product, [plain_part(values)])), x.float() @ values.T) < 0.14
    # What has been rounded already stays as it is: every group here has a code of the largest magnitude.
    part = weights(form, 48)
    part.codes[:, ::64] = 15 if form.codes == "nf4" else 3
    part.codes[part.codes == 8] = 8 if form.codes == "nf4" else 0  # fp4 has two zeros
    values = torch.tensor(VALUES[form.codes])[part.codes.long()] * part.scales.repeat_interleave(form.inputs, dim=1)
    due = packed(product, [replace(part, decode=None)])
    assert torch.equal(packed(product, [plain_part(values)])["weight"], due["weight"])


@pytest.mark.covers("QUANT-12")
def test_scales_of_a_table_that_are_no_numbers_are_refused():
    product, part = make("cpu_linear", ONE, [NF4]), weights(NF4, 48)
    part.scales[47, 3] = float("inf")
    with pytest.raises(CheckpointError, match="nf4 of 48 outputs, 256 inputs has scales that are no number") as caught:
        packed(product, [part])
    assert caught.value.code == "CORE-M160"


def test_scales_of_nvfp4_may_be_negative(isa):
    part = weights(NVFP4, 48)
    part.scales.view(torch.uint8)[::3, ::5] |= 128
    product, x = make("cpu_linear", ONE, [NVFP4]), torch.randn(3, K).bfloat16()
    assert error(product.apply(x, packed(product, [part])), x.float() @ opened(part, torch.float32).T) < NOISE
