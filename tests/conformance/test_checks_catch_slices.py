"""The check of formats on ranks finds one that reads the share of a rank wrongly."""

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
from core_plugin_compressed_tensors.scheme import CompressedFormat

class Broken(CompressedFormat):
    def read(self, site, part, tensors):
        found = super().read(site, part, tensors)
        first = self.__dict__.setdefault("first", site.in_features)
        if site.in_features != first:  # a share of the layer that it has read before
            {share}
        return found
"""

CASES = {"pass": (), "found.codes = found.codes.flip(1)": ("ranks_read_slices_of_the_weight",)}


@pytest.mark.parametrize("share", CASES)
def test_a_format_that_reads_a_share_otherwise_is_found(make_plugin, share):
    made = make_plugin("core.quantization", {"manifest": MANIFEST, "scheme": SCHEME.replace("{share}", share)})
    assert set(made.failing("quantization", "slices")) == set(CASES[share])
