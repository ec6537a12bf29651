"""The kind `core.weight_transfer`: new weights for a running engine."""

from __future__ import annotations

from core.api.kinds import Contract, Kind

WEIGHT_TRANSFER = Kind(
    group="core.weight_transfer",
    label="weight transfer",
    summary="new weights for a running engine",
    descriptor="core.api.descriptors:WeightTransferSpec",
    tier="stable",
    option="weight_transfer",
    help="Weight-transfer engine; none by default.",
    contracts={"impl": Contract("core.api.weights:WeightReceiver")},
    names=("sender",),
    checks=("transfer",),
)
