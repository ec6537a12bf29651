"""The kind `core.weight_loaders`: checkpoint formats."""

from __future__ import annotations

from core.api.kinds import Contract, Kind

LOADER = Kind(
    group="core.weight_loaders",
    label="weight loader",
    summary="checkpoint formats",
    descriptor="core.api.descriptors:WeightLoaderSpec",
    option="load_format",
    help="Weight loader, which is to say the checkpoint's format.",
    needed=True,
    contracts={"impl": Contract("core.api.weights:CheckpointReader")},
    torch_free=("impl",),
    checks=("loaders",),
)
