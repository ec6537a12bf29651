"""Products of numbers of 4 and 8 bits in runs of inputs with scales on both sides, where the card multiplies these."""

import pytest
import torch
import triton.language as tl
from core_plugin_kernels_triton.products import cards, layers
from core_plugin_kernels_triton.products.cards import Card
from core_plugin_kernels_triton.products.kernels.kinds import MICROSCALED, OPENED
from core_plugin_kernels_triton.products.rounding import coded, rounded, shared_scale

from core.ops.products import E2M1

from .bench import INPUTS, activations, off
from .weights import due, e2m1, filled, float8, ints, place, weights

SCALED = [
    e2m1(32, "e8m0", "e2m1:32"),
    e2m1(32, "e8m0", "float8:32"),
    e2m1(16, "e4m3", "e2m1:16"),
    float8(1, 32, scale="e8m0", activations="float8:32"),
    float8(1, 32, "float8_e5m2", scale="e8m0", activations="float8:32"),
]
BOTH, NONE = frozenset({"e8m0", "e4m3"}), frozenset()


@pytest.mark.covers("QUANT-10", "QUANT-11")
@pytest.mark.parametrize("form", SCALED, ids=lambda one: one.key)
@pytest.mark.parametrize("scaled", [True, False])
def test_cards_with_such_products_and_cards_without_give_what_the_reference_gives(form, scaled, monkeypatch):
    monkeypatch.setattr(layers, "card", lambda device: Card(float8=True, scaled=BOTH if scaled else NONE))
    where, part = place([form], [40], INPUTS, bias=True), weights(form, 40, INPUTS, 1, bias=True)
    product = layers.StoredProduct(where, {})
    assert product._how == [MICROSCALED.value if scaled else OPENED.value]
    params = filled(product, [part])
    for rows in (3, 5):  # split, and whole
        x = activations(rows, INPUTS)
        x[1] = 0
        assert off(product.apply(x, params), due(where, [part], x)) < 2e-6


@pytest.mark.parametrize(
    "form",
    [
        e2m1(32, "e8m0"),
        e2m1(32, "float32", "e2m1:32"),
        e2m1(16, "e8m0", "e2m1:16"),
        ints(4, 32, activations="float8:32"),
    ],
    ids=lambda one: one.key,
)
def test_other_forms_are_opened(form):
    assert layers.how(form, torch.device("cpu")) == OPENED.value


@pytest.mark.parametrize("activated", ["e2m1:32", "e2m1:16", "float8:32"])
def test_codes_and_scales_stand_for_the_rounded_activations(activated):
    """Of runs that are zeros, too, of numbers that are none, and of an odd number of inputs."""
    x = activations(4, 71)
    x[1, :40] = 0
    x[2] *= 1e-3
    x[3, 5] = torch.nan
    whole = shared_scale(x[:3], activated, None)
    codes, scales = coded(x, activated, whole, scaled=True)
    run = int(activated.partition(":")[2])
    if activated == "e2m1:16":
        wide = scales.view(torch.float8_e4m3fn).float() * whole
    else:
        wide = torch.ldexp(torch.ones(scales.shape), scales.int() - 127).masked_fill(scales == 255, torch.nan)
    if activated == "float8:32":
        values = codes.view(torch.float8_e4m3fn).float()
    else:
        both = torch.stack([codes & 15, codes >> 4], -1).flatten(1)[:, :71].long()
        values = torch.tensor([*E2M1, *(-one for one in E2M1)])[both]
    found = values * wide.repeat_interleave(run, 1)[:, :71]
    torch.testing.assert_close(found, rounded(x, activated, whole), rtol=1e-6, atol=0, equal_nan=True)


@pytest.mark.parametrize(
    ("capability", "due"),
    [
        ((8, 0), Card(False)),
        ((9, 0), Card(True)),
        ((10, 0), Card(True, scaled=BOTH)),
        ((12, 0), Card(True, scaled=BOTH)),
    ],
)
def test_cards_of_nvidia_multiply_runs_with_scales_from_blackwell_on(capability, due, monkeypatch):
    monkeypatch.setattr(cards, "INTERPRETED", tl.constexpr(False))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert cards.card.__wrapped__(torch.device("cuda", 0)) == due


@pytest.mark.parametrize(
    ("name", "due"),
    [
        ("gfx90a", Card(False)),
        ("gfx942:sramecc+", Card(True, fnuz=True)),
        ("gfx950:sramecc+", Card(True, scaled=frozenset({"e8m0"}))),
        ("gfx1201", Card(True)),
    ],
)
def test_of_amd_s_cards_gfx950_does_with_powers_of_two(name, due, monkeypatch):
    monkeypatch.setattr(cards, "INTERPRETED", tl.constexpr(False))
    monkeypatch.setattr(torch.version, "hip", "7.0")
    described = type("Described", (), {"gcnArchName": name})
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: described)
    assert cards.card.__wrapped__(torch.device("cuda", 0)) == due
