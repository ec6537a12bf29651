"""The kind `core.executors`: where workers live."""

from __future__ import annotations

from core.api.kinds import Contract, Kind

EXECUTOR = Kind(
    group="core.executors",
    label="executor",
    summary="where workers live",
    descriptor="core.api.descriptors:ExecutorSpec",
    option="executor",
    help="How workers are run.",
    needed=True,
    contracts={"impl": Contract("core.api.executors:Executor")},
    torch_free=("impl",),
    checks=("executors",),
)
