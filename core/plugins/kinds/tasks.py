"""The kind `core.tasks`: what an engine does for its requests."""

from __future__ import annotations

from core.api.kinds import Contract, Kind

TASK = Kind(
    group="core.tasks",
    label="task",
    summary="what an engine does for its requests, where that is not sampling tokens",
    descriptor="core.api.descriptors:TaskSpec",
    contracts={
        "impl": Contract("core.api.tasks:Task", closed=True),
        "worker_impl": Contract("core.api.runners:WorkerTask", closed=True),
        "front_impl": Contract("core.api.fronts:TaskFront"),
    },
    calls={"choose": ("facts",)},
    torch_free=("impl", "front_impl", "choose"),
    checks=("tasks",),
)
