"""What depends on the card: float8 that it multiplies or not, and which; and why products are passed over."""

import pytest
import torch
import triton
import triton.language as tl
from core_plugin_kernels_triton.products import layers
from core_plugin_kernels_triton.products.cards import Card
from core_plugin_kernels_triton.products.kernels.dots import _as_fnuz
from core_plugin_kernels_triton.products.kernels.kinds import FLOATS, OPENED
from core_plugin_kernels_triton.products.refine import product as refine
from core_plugin_kernels_triton.products.spec import LINEAR

from core.api import ProbeResult
from core.api.kernels import KernelRequest

from .bench import INPUTS, activations, off
from .weights import due, filled, float8, place, weights


@triton.jit
def _replaced(x, out, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    tl.store(out + at, _as_fnuz(tl.load(x + at)))


def test_e4m3fn_as_e4m3fnuz_is_half_as_much():
    codes = torch.arange(256).to(torch.uint8)
    found = torch.empty_like(codes)
    _replaced[(1,)](codes, found, SIZE=256)
    wanted = codes.view(torch.float8_e4m3fn).float()
    assert torch.equal((2 * found.view(torch.float8_e4m3fnuz).float()).nan_to_num(999), wanted.nan_to_num(999))


@pytest.mark.parametrize("activated", ["float8:token", "float8:tensor", "float8:128"])
def test_cards_without_float8_round_activations_and_open_weights(activated, monkeypatch):
    form, x = float8(16, 128, activations=activated), activations(3, INPUTS)
    where = place([form], [40], INPUTS)
    assert layers.how(form, where.device) == FLOATS.value
    monkeypatch.setattr(layers, "card", lambda device: Card(float8=False))
    assert layers.how(form, where.device) == OPENED.value
    product, part = layers.StoredProduct(where, {}), weights(form, 40, INPUTS)
    assert off(product.apply(x, filled(product, [part])), due(where, [part], x)) < 2e-6


@pytest.mark.parametrize(
    ("form", "dims", "reason"),
    [
        ("gguf:Q4_K@as_is", {"inputs": 320, "outputs": 8}, "320 inputs are no whole blocks of 256"),
        ("gguf:Q4_0@as_is", {"inputs": 40, "outputs": 8}, "40 inputs are no whole blocks of 32"),
        ("gguf:IQ2_XS@as_is", {"inputs": 256, "outputs": 8}, "weights of the form gguf:IQ2_XS@as_is, not"),
        ("int4/1x32:float32@int4:token", {"inputs": 64, "outputs": 8}, "activations 'int4:token' are none of"),
        ("e2m1/1x32:e5m3@as_is", {"inputs": 64, "outputs": 8}, "scales 'e5m3' are none of"),
        ("int4/1x32:float32@as_is", {"inputs": 1 << 17, "outputs": 8}, "inputs 131072 is outside 1 to 65536"),
        ("int4/1x32:float32+zeros+ordered@int8:token", {"inputs": 64, "outputs": 8}, ""),
        ("e2m1/1x16:e4m3@e2m1:16", {}, ""),
    ],
)
def test_reasons_against_a_product(form, dims, reason):
    request = KernelRequest(op="linear", device="cuda", dtype="bfloat16", dims=dims, form=form)
    spec = LINEAR if dims else LINEAR.replace(dims={})
    reasons = (*spec.check(request).reasons, *refine(request, ProbeResult(available=True)).reasons)
    assert reason in " ".join(reasons) if reason else reasons == ()
