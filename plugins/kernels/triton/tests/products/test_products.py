"""The products, in Triton's interpreter, give what the reference product gives in float64."""

import pytest
import torch
from core_plugin_kernels_triton.products.layers import StoredProduct

from .weights import FORMS, due, filled, place, weights

ROWS, INPUTS = 40, 200
"""Sizes that are no multiples of tiles; blocks of files have whole ones."""


def inputs_of(form):
    return 256 if form.codes.startswith("gguf:") else INPUTS


def activations(rows, inputs, dtype=torch.float32, seed=5):
    return torch.randn(rows, inputs, generator=torch.Generator().manual_seed(seed)).to(dtype)


def off(found, wanted):
    return float((found.double() - wanted).norm() / wanted.norm())


@pytest.mark.parametrize("form", FORMS, ids=lambda one: one.key)
def test_every_form_gives_what_the_reference_product_gives(form):
    """For few rows, which are split, and for more, with a bias."""
    inputs = inputs_of(form)
    where = place([form], [ROWS], inputs, bias=True)
    product, part = StoredProduct(where, {}), weights(form, ROWS, inputs, bias=True)
    params = filled(product, [part])
    for rows in (3, 19):
        x = activations(rows, inputs)
        assert off(product.apply(x, params), due(where, [part], x)) < 2e-6, rows
