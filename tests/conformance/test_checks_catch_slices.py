"""The check of formats on ranks finds one that states its tensors wrongly."""

from __future__ import annotations

import pytest

MANIFEST = """
from core.api import QuantSpec

SPEC = QuantSpec(
    name="broken", impl="PKG.scheme:Broken", api=1, summary="s", methods={"compressed-tensors"}, devices={"cpu"},
    dtypes={"float32"}, refine="core_plugin_compressed_tensors.config:refine",
)
"""

SCHEME = """
from core.api import Stored
from core_plugin_compressed_tensors.scheme import CompressedFormat

class Broken(CompressedFormat):
    def stored(self, site, part):
        found = super().stored(site, part)
        return [*found[:-1], {last}]
"""

CASES = {
    "found[-1]": (),
    "Stored(found[-1].suffix, (None, None)) if len(found) > 1 else found[-1]": ("ranks_read_slices_of_the_weight",),
}


@pytest.mark.parametrize("last", CASES)
def test_a_format_that_does_not_say_what_a_rank_needs_is_found(make_plugin, last):
    made = make_plugin("core.quantization", {"manifest": MANIFEST, "scheme": SCHEME.replace("{last}", last)})
    assert set(made.failing("quantization", "slices")) == set(CASES[last])
