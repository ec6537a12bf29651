"""The kind `core.weight_stores`: packed weights kept for the next start."""

from __future__ import annotations

from core.api.kinds import Contract, Kind

WEIGHT_STORE = Kind(
    group="core.weight_stores",
    label="weight store",
    summary="packed weights kept for the next start",
    descriptor="core.api.descriptors:WeightStoreSpec",
    option="weight_store",
    help="Where weights are kept in their packed form for the next start; none by default.",
    contracts={"impl": Contract("core.api.weights:WeightStore")},
    checks=("weight_stores",),
)
