"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api import WeightStoreSpec

MAPPED = WeightStoreSpec(
    name="mapped",
    impl="core_plugin_mapped_weights.store:MappedStore",
    api=1,
    summary="Keeps packed weights in one file for each model and maps it at the next start",
    options="core_plugin_mapped_weights.options:MappedOptions",
)
