"""The kind `core.schedulers`: who is next, who gives way."""

from __future__ import annotations

from core.api.kinds import Contract, Kind

SCHEDULER = Kind(
    group="core.schedulers",
    label="scheduling policy",
    summary="who is next, who gives way",
    descriptor="core.api.descriptors:SchedulerPolicySpec",
    option="scheduler_policy",
    help="Order of admission and preemption.",
    needed=True,
    contracts={
        "impl": Contract(
            "core.api.schedulers:SchedulerPolicy",
            optional=("core.api.schedulers:AdmissionPolicy", "core.api.schedulers:ChunkPolicy"),
        )
    },
    torch_free=("impl",),
    checks=("schedulers",),
)
