"""Layers of several parts, packing, lookups, and what lies beside the numbers in memory."""

import pytest
import torch
from core_plugin_kernels_triton.products.layers import StoredProduct

from core.api import CoreError, Part, WeightForm
from core_testing.conformance.tools.parts import plain_part

from .bench import INPUTS, activations, bordered, inputs_of, off, same_bits
from .weights import BLOCKS, FORMS, INT8, TABLES, due, e2m1, filled, float8, ints, place, weights

CASES = {
    "one run": [ints(4, 32, zeros=True)] * 3,
    "groups of outputs that end with a part": [float8(8, 128, activations="float8:128")] * 3,
    "groups of outputs that do not": [float8(16, 128)] * 3,
    "scales of parts": [float8(0)] * 3,
    "fixed scales of activations": [float8(0, activations="float8:tensor")] * 3,
    "orders of inputs": [ints(4, 32, zeros=True, ordered=True)] * 3,
    "scales of NVFP4's parts": [e2m1(16, "e4m3")] * 3,
    "different forms": [INT8[3], TABLES[0], ints(3, 64)],
}
ROWS = [40, 24, 16]


@pytest.mark.parametrize("name", CASES)
def test_layers_of_several_parts(name):
    forms, x = CASES[name], activations(3, INPUTS)
    where = place(forms, ROWS, INPUTS, bias=True)
    product = StoredProduct(where, {})
    parts = [weights(form, rows, INPUTS, seed, bias=True) for seed, (form, rows) in enumerate(zip(forms, ROWS))]
    params = filled(product, parts)
    assert off(product.apply(x, params), due(where, parts, x)) < 2e-6
    again = filled(product, parts, order=[2, 0, 1])
    assert all(torch.equal(one, again[name]) for name, one in params.items())


def test_blocks_of_different_kinds_are_parts_of_one_layer():
    forms = [BLOCKS[7], BLOCKS[7], BLOCKS[9]]
    where, x = place(forms, ROWS, 256), activations(3, 256)
    product = StoredProduct(where, {})
    parts = [weights(form, rows, 256, seed) for seed, (form, rows) in enumerate(zip(forms, ROWS))]
    params = filled(product, parts)
    assert {name: len(one) for name, one in params.items()} == {"codes_0": 64, "codes_1": 16}
    assert off(product.apply(x, params), due(where, parts, x)) < 2e-6


@pytest.mark.parametrize("form", [ints(4, 32, zeros=True, ordered=True), INT8[0], e2m1(16, "e4m3"), *BLOCKS[::4]])
def test_rows_are_looked_up(form):
    inputs = inputs_of(form)
    where, part = place([form], [50], inputs, kind="embedding"), weights(form, 50, inputs)
    product = StoredProduct(where, {})
    params = filled(product, [part])
    for ids in ([49, 0, 7, 7, 3], []):
        chosen = torch.tensor(ids, dtype=torch.int64)
        found = product.look_up(chosen, params)
        assert found.shape == (len(ids), inputs)
        torch.testing.assert_close(found, part.dense(torch.float32)[chosen], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("activated", ["as_is", "int8:token", "float8:token", "float8:tensor", "float8:32", "e2m1:16"])
def test_no_tokens_give_nothing(activated):
    where = place([ints(4, 32, activations=activated)], [40], INPUTS)
    product = StoredProduct(where, {})
    params = filled(product, [weights(where.forms[0], 40, INPUTS)])
    assert product.apply(torch.empty(0, INPUTS), params).shape == (0, 40)


SIZES = [
    (INT8[0], 8),
    (float8(1), 8),
    (float8(16, 128), 8 + 32 / (16 * 128)),
    (ints(4, 128), 4 + 32 / 128),
    (ints(4, 128, zeros=True), 4 + 64 / 128),
    (ints(3, 64), 3 + 32 / 64),
    (TABLES[0], 4 + 32 / 64),
    (e2m1(32, "e8m0"), 4 + 8 / 32),
    (e2m1(16, "e4m3"), 4 + 8 / 16),
    (BLOCKS[0], 4.5),
    (WeightForm(codes="gguf:Q3_K"), 3.4375),
    (WeightForm(codes="gguf:Q6_K"), 6.5625),
]


@pytest.mark.parametrize(("form", "bits"), SIZES)
def test_weights_take_the_memory_of_their_form(form, bits):
    """Beside a float32 for each output, and sixteen values of a table."""
    where = place([form], [512], 1024)
    taken = sum(
        torch.Size(shape).numel() * dtype.itemsize for shape, dtype in StoredProduct(where, {}).sizes().values()
    )
    due_bytes = 512 * 1024 * bits / 8
    assert due_bytes <= taken <= due_bytes + 4 * (512 + 16)


@pytest.mark.parametrize("form", [one for one in FORMS if not one.codes.startswith("gguf:")], ids=lambda one: one.key)
def test_plain_numbers_of_an_update_are_rounded_to_the_form(form):
    where, x = place([form], [40], 192), activations(2, 192)
    product, part = StoredProduct(where, {}), plain_part(activations(40, 192, seed=1))
    assert off(product.apply(x, filled(product, [part])), due(where, [part], x)) < (0.8 if form.bits == 2 else 0.3)


def test_plain_numbers_for_blocks_are_refused():
    where = place([BLOCKS[0]], [40], 256)
    with pytest.raises(CoreError, match="rounds numbers to these blocks") as caught:
        filled(StoredProduct(where, {}), [plain_part(activations(40, 256))])
    assert caught.value.code == "CORE-M160"


@pytest.mark.parametrize("form", [ints(4, 32), INT8[3], float8(16, 128, activations="float8:128")])
def test_nothing_is_read_beside_rows_and_weights(form):
    """NaN and infinity lie between the activations' rows, and behind every parameter."""
    where, x = place([form], [40], INPUTS), activations(19, INPUTS)
    product = StoredProduct(where, {})
    params = filled(product, [weights(form, 40, INPUTS)])
    wanted = product.apply(x, params)
    wide = torch.full((21, INPUTS + 9), float("nan"))
    wide[:, ::2] = float("inf")
    apart = wide[1:-1, 5 : 5 + INPUTS].copy_(x)
    assert same_bits(product.apply(apart, {name: bordered(one) for name, one in params.items()}), wanted)


@pytest.mark.parametrize(
    "form", [ints(4, 32), INT8[3], float8(1, activations="float8:token"), e2m1(32, "e8m0", "e2m1:32")]
)
def test_a_strange_token_is_alone_with_it(form):
    where, x = place([form], [40], INPUTS), activations(5, INPUTS)
    product = StoredProduct(where, {})
    params = filled(product, [weights(form, 40, INPUTS)])
    wanted = product.apply(x, params)
    x[2, 7] = float("nan")
    found = product.apply(x, params)
    assert found[2].isnan().all() and torch.equal(found[[0, 1, 3, 4]], wanted[[0, 1, 3, 4]])


@pytest.mark.parametrize("form", [ints(4, 32), INT8[3], float8(16, 128, activations="float8:128")])
def test_a_token_has_the_same_numbers_in_every_batch_if_that_is_asked_for(form, monkeypatch):
    from core_plugin_kernels_triton.products import launches

    monkeypatch.setattr(launches, "MOST_SPLIT", 8)
    where, x = place([form], [40], INPUTS, bias=True), activations(19, INPUTS)
    product = StoredProduct(where, {"batch_invariant": True})
    params = filled(product, [weights(form, 40, INPUTS, bias=True)])
    whole = product.apply(x, params)
    assert off(whole, due(where, [weights(form, 40, INPUTS, bias=True)], x)) < 2e-6
    for rows in (slice(0, 1), slice(3, 8), slice(17, 19)):
        assert torch.equal(product.apply(x[rows], params), whole[rows])


def test_a_single_scale_may_serve_all_groups():
    form, x = ints(4, 32), activations(3, INPUTS)
    where = place([form], [40], INPUTS)
    product, codes = StoredProduct(where, {}), weights(form, 40, INPUTS).codes
    part = Part(form, codes, torch.full((1, 1), 0.5))
    assert off(product.apply(x, filled(product, [part])), x.double() @ (codes * 0.5).double().T) < 2e-6
