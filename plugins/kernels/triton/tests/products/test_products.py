"""The products, in Triton's interpreter, give what the reference product gives in float64."""

import pytest
import torch
from core_plugin_kernels_triton.products.layers import StoredProduct

from .bench import activations, inputs_of, off
from .weights import BLOCKS, FORMS, GROUPS, INT8, due, e2m1, filled, float8, place, weights

ROWS = 40
SHORT = [INT8[1], float8(16, 128, activations="float8:128"), GROUPS[1], e2m1(16, "e4m3", "e2m1:16"), BLOCKS[7]]
QUICK = [*FORMS[::3], *SHORT]


def check(form, rows, dtype, tolerance):
    inputs = inputs_of(form)
    where = place([form], [ROWS], inputs, dtype, bias=True)
    product, part = StoredProduct(where, {}), weights(form, ROWS, inputs, bias=True)
    params = filled(product, [part])
    for count in rows:
        x = activations(count, inputs, dtype)
        found = product.apply(x, params)
        assert found.dtype == dtype and off(found, due(where, [part], x)) < tolerance, count


@pytest.mark.parametrize("form", dict.fromkeys(QUICK), ids=lambda one: one.key)
def test_a_form_gives_what_the_reference_product_gives(form):
    """For few rows, which are split, with a bias."""
    check(form, (3,), torch.float32, 2e-6)


@pytest.mark.exhaustive
@pytest.mark.parametrize("form", FORMS, ids=lambda one: one.key)
def test_every_form_gives_what_the_reference_product_gives(form):
    """For few rows, which are split, and for more."""
    check(form, (1, 3, 19), torch.float32, 2e-6)


@pytest.mark.parametrize("form", SHORT, ids=lambda one: one.key)
def test_short_types_are_as_near_as_their_rounding(form):
    check(form, (19,), torch.bfloat16, 1e-2)


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("form", FORMS, ids=lambda one: one.key)
def test_every_form_in_short_types(form, dtype):
    check(form, (3, 19), dtype, 1e-2)


@pytest.mark.parametrize("kind", ["embedding", "lm_head", "router"])
def test_scores_stay_in_float32(kind):
    form, x = GROUPS[1], activations(3, 200, torch.bfloat16)
    where = place([form], [ROWS], 200, torch.bfloat16, kind)
    product, part = StoredProduct(where, {}), weights(form, ROWS, 200)
    found = product.apply(x, filled(product, [part]))
    assert found.dtype == torch.float32
    assert off(found, due(where, [part], x)) < (3e-6 if kind == "router" else 1e-2)
