"""The kind `core.stat_sinks`: receivers of figures."""

from __future__ import annotations

from core.api.kinds import Contract, Kind

STAT_SINK = Kind(
    group="core.stat_sinks",
    label="stat sink",
    summary="receivers of figures",
    descriptor="core.api.descriptors:StatSinkSpec",
    option="stat_sink",
    help="Receivers of the engine's figures.",
    many=True,
    contracts={"impl": Contract("core.api.sinks:StatSink")},
    torch_free=("impl",),
    checks=("sinks",),
)
