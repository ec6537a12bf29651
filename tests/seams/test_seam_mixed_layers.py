"""A layer whose parts have different forms: one product takes them all, or the reference product does."""

from __future__ import annotations

import pytest
import torch

from core.api import KernelSpec, LayerSite, ProductPlace, WeightForm
from core.layers.kernels import KernelTable, PlannedKernel
from core.ops.products import ReferenceProduct

INT4 = WeightForm(codes="int", bits=4, inputs=32)
BLOCKS = WeightForm(codes="gguf:Q4_K")
PLAIN = WeightForm()


class Fast(ReferenceProduct):
    """A product of a plugin."""


def table(*forms: str) -> KernelTable:
    spec = KernelSpec(
        name="fast",
        impl="acme:Fast",
        api=1,
        summary="s",
        op="linear",
        devices=frozenset({"cpu"}),
        dtypes=frozenset({"float32"}),
        forms=forms,
    )
    make = lambda place: Fast(place, {})  # noqa: E731 - made anew: the table remembers whose it is
    return KernelTable("cpu", "float32", [PlannedKernel(spec, "acme 1.0", lambda: make)])


@pytest.mark.covers("QUANT-12")
@pytest.mark.parametrize(
    ("takes", "forms", "served"),
    [
        (("int4/*", "plain@*"), (INT4, PLAIN, INT4), Fast),
        (("int4/*",), (INT4, INT4, INT4), Fast),
        (("int4/*",), (INT4, PLAIN, INT4), ReferenceProduct),
        (("int4/*", "plain@*"), (INT4, PLAIN, BLOCKS), ReferenceProduct),
    ],
)
def test_one_product_serves_all_parts_of_a_layer(takes, forms, served):
    site = LayerSite("linear", "layer.attn", 64, (("q", 16), ("k", 8), ("v", 8)))
    place = ProductPlace(site, forms, torch.device("cpu"), torch.float32)
    product, owner = table(*takes).product(place, "linear")
    assert type(product) is served
    assert ("acme 1.0" in owner) == (served is Fast)
