"""The kind `core.participants`: features that take part in every step."""

from __future__ import annotations

from core.api.kinds import Contract, Kind

PARTICIPANT = Kind(
    group="core.participants",
    label="participant",
    summary="features that take part in every step",
    descriptor="core.api.descriptors:ParticipantSpec",
    option="participant",
    help="Participants in every step, in the order they are asked.",
    many=True,
    contracts={
        "impl": Contract("core.api.participants:Participant", closed=True),
        "worker_impl": Contract("core.api.participants:WorkerParticipant", closed=True),
        "front_impl": Contract("core.api.participants:FrontParticipant", closed=True),
    },
    torch_free=("impl",),
    checks=("participants",),
)
