"""DeepGEMM: a stand-in of the library that refuses what its documentation does not allow."""

from __future__ import annotations

import sys
from importlib import import_module

import pytest
import torch
from core_plugin_deepgemm import rounding
from core_plugin_deepgemm.fits import fits
from core_plugin_deepgemm.grouping import segments
from core_plugin_deepgemm.manifest import EXPERTS_IN, FORM, LINEAR

from core.api import LayerSite, ProductPlace, WeightForm
from core.api.kernels import KernelRequest
from core.api.verdict import ProbeResult
from core.ops.experts import ReferenceExpertsIn, ReferenceExpertsOut
from core.ops.products import ReferenceProduct
from core_testing.conformance.tools.parts import plain_part, random_part
from tests.seams.libraries import deepgemm

MODULES = [f"core_plugin_deepgemm.{name}" for name in ("weights", "linear", "experts")]
BLOCKS = WeightForm(codes="float8_e4m3fn", outputs=128, inputs=128, activations="float8:128")
K = 256


@pytest.fixture(params=[False, True], ids=["hopper", "blackwell"])
def blackwell(request):
    return request.param


@pytest.fixture
def grouped(monkeypatch, blackwell):
    """The stand-in, and none of the plugin's modules that knows another one."""
    for name in MODULES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    made = deepgemm.install(monkeypatch, blackwell=blackwell)
    weights = import_module("core_plugin_deepgemm.weights")
    monkeypatch.setattr(weights, "needs_powers", lambda device: blackwell)
    yield made
    for name in MODULES:
        sys.modules.pop(name, None)


def place_of(parts, *, bias=False, experts=0):
    kind = "experts" if experts else "linear"
    names = tuple((f"{expert}.{name}", rows) for expert in range(max(1, experts)) for name, rows in parts)
    site = LayerSite(kind, "layer", K, names, bias=bias, experts=experts)
    return ProductPlace(site, (BLOCKS,) * len(names), torch.device("cpu"), torch.bfloat16, "fp8")


def filled(product, parts):
    """Return the parameters of a product, packed as core packs them."""
    params = {name: torch.empty(shape, dtype=dtype) for name, (shape, dtype) in product.sizes().items()}
    for index, part in reversed(list(enumerate(parts))):
        product.pack(part, index, params)
    return product.finish(params)


def parts_of(place):
    rng = torch.Generator().manual_seed(5)
    return [random_part(BLOCKS, rows, K, rng, bias=place.site.bias) for _, rows in place.site.parts]


def close(found, due, blackwell):
    """On Blackwell weights and activations are rounded again, by at most 1/16 of each number."""
    error = (found.float() - due.float()).norm() / due.float().norm()
    assert found.dtype == due.dtype and found.shape == due.shape and error < (0.06 if blackwell else 0.006), error


PARTS = {
    "one": (("", 192),),
    "whole blocks": (("q", 256), ("k", 128), ("v", 64)),
    "parts that share a block": (("q", 192), ("k", 64), ("v", 64)),
}


@pytest.mark.parametrize("parts", PARTS.values(), ids=PARTS)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("tokens", [0, 1, 7])
def test_linear_layers(grouped, blackwell, parts, bias, tokens):
    place = place_of(parts, bias=bias)
    product = import_module("core_plugin_deepgemm.linear").Linear(place, {})
    reference, given = ReferenceProduct(place, {}), parts_of(place)
    x = torch.randn(tokens, K, generator=torch.Generator().manual_seed(1)).bfloat16()
    found = product.apply(x, filled(product, given))
    due = reference.apply(x, filled(reference, given))
    if tokens:
        close(found, due, blackwell)
    else:
        assert found.shape == due.shape


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("parts", [(("", 128),), (("gate", 192), ("up", 192))], ids=["one", "gate and up"])
def test_experts(grouped, blackwell, parts, bias):
    """Some have no rows, some rows no expert, and one has more rows than a tile."""
    place, tokens, k = place_of(parts, bias=bias, experts=4), 21, 2
    rng = torch.Generator().manual_seed(2)
    ids = torch.randint(0, 2, (tokens, k), generator=rng, dtype=torch.int32)
    ids[3] = torch.tensor([3, -1])
    ids[7, 1] = -1
    made, given = import_module("core_plugin_deepgemm.experts"), parts_of(place)
    x = torch.randn(tokens, K, generator=rng).bfloat16()
    product, reference = made.ExpertsIn(place, {}), ReferenceExpertsIn(place, {})
    close(product.apply(x, ids, filled(product, given)), reference.apply(x, ids, filled(reference, given)), blackwell)
    rows, weights = torch.randn(tokens * k, K, generator=rng).bfloat16(), torch.rand(tokens, k, generator=rng)
    product, reference = made.ExpertsOut(place, {}), ReferenceExpertsOut(place, {})
    found = product.apply(rows, weights, ids, filled(product, given))
    close(found, reference.apply(rows, weights, ids, filled(reference, given)), blackwell)
    assert grouped and all(rows % deepgemm.TILE == 0 for rows in grouped)


def test_no_rows(grouped):
    place = place_of((("", 128),), experts=2)
    made, none = import_module("core_plugin_deepgemm.experts"), torch.empty(0, 2, dtype=torch.int32)
    product = made.ExpertsIn(place, {})
    params = filled(product, parts_of(place))
    assert product.apply(torch.empty(0, K).bfloat16(), none, params).shape == (0, 128)
    out = made.ExpertsOut(place, {}).apply(torch.empty(0, K).bfloat16(), torch.empty(0, 2), none, params)
    assert out.shape == (0, 128)


def test_plain_numbers_of_an_update_are_rounded_to_blocks(grouped, blackwell):
    place = place_of((("", 192),))
    product = import_module("core_plugin_deepgemm.linear").Linear(place, {})
    values = torch.randn(192, K, generator=torch.Generator().manual_seed(3))
    x = torch.randn(4, K, generator=torch.Generator().manual_seed(4)).bfloat16()
    found = product.apply(x, filled(product, [plain_part(values)]))
    assert (found.float() - x.float() @ values.T).norm() / (x.float() @ values.T).norm() < 0.06


@pytest.mark.parametrize("tile", [1, 4, 16])
def test_segments_hold_every_row_once_and_no_two_experts_in_a_tile(tile):
    rng = torch.Generator().manual_seed(0)
    for tokens, experts in [(1, 1), (5, 3), (40, 7), (3, 64)]:
        ids = torch.randint(-1, experts, (tokens, 2), generator=rng, dtype=torch.int32)
        found = segments(ids, experts, tile)
        owned = found.places[found.places < found.rows]
        assert len(owned) == (ids >= 0).sum() == len(set(owned.tolist())) and found.rows % tile == 0
        assert torch.equal(found.experts[owned], ids.flatten()[found.order][: len(owned)])
        for one in found.experts.view(-1, tile):
            assert len(set(one[one >= 0].tolist())) <= 1


def test_powers_are_the_least_that_are_no_smaller():
    scales = torch.tensor([1.0, 1.5, 2.0, 0.3, 2.0**-60, 3e38])
    assert rounding.power_above(scales)[:5].tolist() == [1.0, 2.0, 2.0, 0.5, 2.0**-60]
    codes = torch.randn(130, 200).to(torch.float8_e4m3fn)
    again, powers = rounding.to_powers(codes, torch.rand(2, 2) + 0.5)
    assert again.shape == codes.shape and bool((torch.frexp(powers)[0] == 0.5).all())


@pytest.mark.parametrize(
    ("capability", "arch", "why"),
    [
        ((8, 9), "", "the card has 8.9"),
        ((9, 0), "", None),
        ((10, 0), "", None),
        ((10, 3), "", None),
        ((12, 0), "", "the card has 12.0"),
        ((), "gfx942", "not for gfx942"),
    ],
)
@pytest.mark.covers("QUANT-09")
def test_cards(capability, arch, why):
    request = KernelRequest(op="linear", device="cuda", dtype="bfloat16", form=FORM)
    verdict = fits(request, ProbeResult(available=True, capability=capability, facts={"arch": arch} if arch else {}))
    assert verdict.ok == (why is None) and (why is None or why in verdict.reasons[0])


def test_what_is_asked_of_sizes_and_forms():
    request = KernelRequest(op="linear", device="cuda", dtype="bfloat16", dims={"inputs": 512, "outputs": 192})
    assert LINEAR.check(request.replace(form=BLOCKS.key)).ok and BLOCKS.key == FORM
    assert not LINEAR.check(request.replace(form="float8_e4m3fn/1xall:float32@float8:token")).ok
    assert not LINEAR.check(request.replace(form=FORM, dims={"inputs": 200, "outputs": 192})).ok
    assert EXPERTS_IN.band == 4
