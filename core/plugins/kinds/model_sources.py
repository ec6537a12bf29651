"""The kind `core.model_sources`: references to files."""

from __future__ import annotations

from core.api.kinds import Contract, Kind

SOURCE = Kind(
    group="core.model_sources",
    label="model source",
    summary="references to files",
    descriptor="core.api.descriptors:ModelSourceSpec",
    option="model_source",
    help="Who turns the model reference into files.",
    needed=True,
    contracts={
        "impl": Contract(
            "core.api.weights:ModelSource",
            optional=("core.api.sources:ReachesOut", "core.api.sources:KeepsModels", "core.api.sources:RemovesModels"),
        )
    },
    torch_free=("impl",),
    checks=("sources",),
)
