"""Each check of weight stores finds the store that is wrong in its way."""

from __future__ import annotations

import pytest

from core_testing.conformance import Level

MANIFEST = """
from core.api import WeightStoreSpec

SPEC = WeightStoreSpec(
    name="broken",
    impl="PKG.store:Store",
    api=1,
    summary="s",
    options="core_plugin_mapped_weights.options:MappedOptions",
)
"""

STORE = """
from core.api import KeptWeights
from core_plugin_mapped_weights.store import MappedStore
{top}

class Store(MappedStore):
    def open(self, key):
        found = super().open(key)
        {open}
        return found

    def keep(self, key, tensors, about, wanted):
        {keep}
        return super().keep(key, tensors, about, wanted)

    def entries(self):
        found = list(super().entries())
        {entries}
        return found

    def remove(self, key):
        freed = super().remove(key)
        {remove}
        return freed
"""

CASES = {
    "tensors_come_back": {"open": "found = found and {name: one.reshape(-1) for name, one in found.items()}"},
    "tensors_are_ordinary": {
        "top": "SHOWN = {}",
        "open": "found = SHOWN.setdefault(key, found) if found else found",
        "remove": "SHOWN.pop(key, None)",
        "entries": "pass",
    },
    "unknown_keys_are_none": {"open": "found = {} if found is None and not hasattr(self, 'kept') else found"},
    "the_first_one_stays": {"keep": "super().remove(key)"},
    "what_is_given_up_is_not_kept": {"keep": "wanted = lambda: True"},
    "entries_say_what_is_kept": {"remove": "freed = 1"},
    "opened_tensors_outlive_the_entry": {
        "top": "SHOWN = {}",
        "open": "SHOWN[key] = found",
        "remove": "[one.view(-1).view(__import__('torch').uint8).zero_() for one in SHOWN.pop(key, {}).values()]",
    },
    "it_outlives_its_process": {
        "keep": "self.mine = {*getattr(self, 'mine', ()), key}",
        "open": "found = found if key in getattr(self, 'mine', ()) else None",
    },
    "listing_needs_no_torch": {"top": "import torch"},
    "starts_give_the_same_tokens": {
        "open": "[one[: len(one) // 2].zero_() for name, one in (found or {}).items() if 'down_proj' in name]"
    },
}
"""Check -> what the store does that it finds."""


@pytest.fixture
def store(make_plugin):
    def make(**given):
        source = STORE
        for part in ("top", "open", "keep", "entries", "remove"):
            source = source.replace("{" + part + "}", given.get(part, "" if part == "top" else "pass"))
        return make_plugin("core.weight_stores", {"manifest": MANIFEST, "store": source})

    return make


def test_a_sound_store_passes(store):
    report = store().report("weight_stores", "spawn")
    assert (report.failures, report.level) == ([], Level.L1)


@pytest.mark.parametrize("check", CASES)
def test_weight_stores(store, check):
    """Others may find it too; a start, which takes seconds, is asked only for what it alone finds."""
    assert [one.check for one in store(**CASES[check]).report(checks=(check,)).failures] == [check]
