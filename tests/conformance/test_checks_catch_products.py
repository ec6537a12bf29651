"""Each check of products finds the product that is wrong in its way, and only that check does."""

from __future__ import annotations

import pytest

from core_testing.conformance import Level

MANIFEST = """
from core.api import KernelSpec

SPEC = KernelSpec(
    name="broken", impl="PKG.product:Opened", api=1, summary="s", op="{op}", devices=frozenset({{"cpu"}}),
    dtypes=frozenset({{"float32", "bfloat16"}}), forms=("plain@as_is", "int4/1x32:float32*@as_is"),
)
"""

PRODUCT = """
import torch
from torch.nn import functional

from core.api import Product

class Opened(Product):
    layout = "rows of values 1"

    def sizes(self):
        site, dtype = self.place.site, self.place.dtype
        sizes = {{"weight": ((site.rows, site.in_features), dtype), "packed": ((1,), torch.int32)}}
        return {{**sizes, "bias": ((site.rows,), dtype)}} if site.bias else sizes

    def pack(self, part, index, out):
        first = sum(rows for _, rows in self.place.site.parts[:index])
        rows = self.place.site.parts[index][1]
        values = part.dense(self.place.dtype)
        out["packed"].fill_(0)
        {pack}
        out["weight"].narrow(0, first, rows).copy_(values)
        if part.bias is not None:
            out["bias"].narrow(0, first, rows).copy_(part.bias)

    def finish(self, params):
        {finish}
        return params

    def apply(self, x, params):
        {apply}
        return functional.linear(x, params["weight"], params.get("bias"))

    def look_up(self, ids, params):
        {look_up}
        return functional.embedding(ids, params["weight"])
"""

CASES = {
    "forms_match_the_reference": ("linear", "apply", "if len(self.place.site.parts) == 1: x = x * 1.03"),
    "parts_of_different_forms_match_the_reference": (
        "linear",
        "pack",
        "if len(set(self.place.forms)) > 1 and self.place.forms[index].codes == 'int': values = values * 1.1",
    ),
    "parts_come_in_any_order": ("linear", "pack", "out['packed'].fill_(index)"),
    "new_weights_take_the_place_of_old_ones": (
        "linear",
        "apply",
        "self.first = getattr(self, 'first', params); params = self.first if len(x) == 3 else params",
    ),
    "plain_numbers_are_rounded_to_the_form": (
        "linear",
        "pack",
        "if part.form != self.place.forms[index]: raise ValueError('another form')",
    ),
    "finish_changes_nothing_that_it_is_given": ("linear", "finish", "params['packed'].add_(1)"),
    "kept_parameters_serve_another": ("linear", "finish", "params = {**params, 'more': params['packed']}"),
    "rows_of_activations_may_lie_apart": (
        "linear",
        "apply",
        "if not x.is_contiguous(): x = x.flip(0)",
    ),
    "rows_are_looked_up": ("lookup", "look_up", "ids = ids.clamp(min=1)"),
}


@pytest.fixture
def product(make_plugin):
    def make(op: str = "linear", **parts: str):
        source = PRODUCT.format(**{name: parts.get(name, "pass") for name in ("pack", "finish", "apply", "look_up")})
        return make_plugin("core.kernels", {"manifest": MANIFEST.format(op=op), "product": source})

    return make


@pytest.mark.parametrize("op", ["linear", "lookup"])
def test_a_sound_product_passes(product, op):
    report = product(op).report("products")
    assert (report.failures, report.level) == ([], Level.L1)


@pytest.mark.parametrize("check", CASES)
def test_products(product, check):
    op, place, text = CASES[check]
    assert set(product(op, **{place: text}).failing("products")) == {check}


@pytest.mark.parametrize("text", ["x.zero_()", "return functional.linear(x, params['weight'])[:, 1:]"])
def test_other_outcomes_than_the_references_are_caught(product, text):
    assert "forms_match_the_reference" in product(apply=text).failing("products")


def test_forms_that_the_kit_cannot_make_are_said(product, make_plugin):
    manifest = MANIFEST.format(op="linear").replace("plain@as_is", "acme:*").replace("int4/1x32:float32*@as_is", "b:*")
    source = PRODUCT.format(pack="pass", finish="pass", apply="pass", look_up="pass")
    report = make_plugin("core.kernels", {"manifest": manifest, "product": source}).report("products")
    (message,) = {one.message for one in report.outcomes if one.status == "unavailable"}
    assert "acme:*" in message
