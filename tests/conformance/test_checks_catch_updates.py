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
