"""The checks of what becomes of other weights find a format that keeps something of the first ones."""

from __future__ import annotations

import pytest

MANIFEST = """
from core.api import QuantSpec

SPEC = QuantSpec(
    name="broken", impl="PKG.scheme:Broken", api=2, summary="s", methods={"compressed-tensors"}, devices={"cpu"},
    dtypes={"float32"}, refine="core_plugin_compressed_tensors.config:refine",
)
"""

SCHEME = """
from dataclasses import replace

from core_plugin_compressed_tensors.scheme import CompressedFormat

class Broken(CompressedFormat):
    def read(self, site, part, tensors):
        found = super().read(site, part, tensors)
        {does}
        return found
"""

CASES = {
    "pass": set(),
    "found = replace(self.__dict__.setdefault(site.module(part), found), bias=None)": {
        "an_update_is_as_good_as_a_start",
    },
    "self.reads = getattr(self, 'reads', 0) + 1; found.codes = found.codes.roll(self.reads, 0)": {
        "two_loads_give_equal_bytes",
        "an_update_is_as_good_as_a_start",
    },
}


@pytest.mark.parametrize("does", CASES)
def test_a_format_that_keeps_what_it_has_read_is_found(make_plugin, does):
    made = make_plugin("core.quantization", {"manifest": MANIFEST, "scheme": SCHEME.replace("{does}", does)})
    assert set(made.failing("updates")) == CASES[does]


FORM = """
    def form(self, site, part):
        self.asked = getattr(self, "asked", 0) + 1
        found = super().form(site, part)
        return replace(found, bits=8 if self.asked % 2 else 4) if found.codes == "int" else found
"""
EXPERTS = 'found.codes = found.codes.flip(0) if site.kind == "experts" else found.codes'
OTHERS = (
    ("updates", SCHEME.replace("{does}", "pass") + FORM, {"made_up_weights_serve"}),
    (
        "updates",
        SCHEME.replace("{does}", 'assert found.scales is None or found.scales.isfinite().all(), "scales"'),
        {"scales_that_are_no_numbers_are_refused_by_name"},
    ),
    (
        "stored_experts",
        SCHEME.replace("{does}", EXPERTS),
        {"experts_are_read_as_layers_of_their_own", "experts_in_one_tensor_are_taken_apart"},
    ),
)


@pytest.mark.parametrize(("area", "scheme", "found"), OTHERS, ids=lambda value: value if isinstance(value, str) else "")
def test_what_is_wrong_with_forms_scales_and_experts_is_found(make_plugin, area, scheme, found):
    made = make_plugin("core.quantization", {"manifest": MANIFEST, "scheme": scheme})
    assert found <= set(made.failing(area))


def test_sizes_that_nobody_compares_are_found(make_plugin, monkeypatch):
    monkeypatch.setattr("core.layers.cuts._check_sizes", lambda *_: None)
    made = make_plugin("core.quantization", {"manifest": MANIFEST, "scheme": SCHEME.replace("{does}", "pass")})
    assert "tensors_of_other_sizes_are_refused_by_name" in made.failing("updates")
