"""The kind `core.platforms`: device runtimes."""

from __future__ import annotations

from core.api.kinds import Contract, Kind

PLATFORM = Kind(
    group="core.platforms",
    label="platform",
    summary="device runtimes",
    descriptor="core.api.descriptors:PlatformSpec",
    api=2,
    oldest=2,  # nobody had published against API 1
    tier="stable",
    option="platform",
    help="Device platform, or one device of it: NAME:INDEX.",
    needed=True,
    contracts={"impl": Contract("core.api.platform:Platform", closed=True)},
    calls={"probe": (), "environment": ("threads",)},
    torch_free=("probe",),
    checks=("platforms",),
)
