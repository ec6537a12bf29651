"""The kind `core.routes`: further HTTP endpoints."""

from __future__ import annotations

from core.api.kinds import Contract, Kind

ROUTE = Kind(
    group="core.routes",
    label="route plugin",
    summary="further HTTP endpoints",
    descriptor="core.api.descriptors:RouteSpec",
    option="route",
    help="Plugins whose HTTP routes are served: under /x/NAME/, and where they say.",
    many=True,
    contracts={"impl": Contract("core.api.routes:RoutePlugin")},
    torch_free=("impl",),
    checks=("routes", "route_sockets"),
)
