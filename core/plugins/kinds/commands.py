"""The kind `core.commands`: further sub-commands."""

from __future__ import annotations

from core.api.kinds import Contract, Kind

COMMAND = Kind(
    group="core.commands",
    label="command",
    summary="further sub-commands",
    descriptor="core.api.descriptors:CommandSpec",
    contracts={"impl": Contract("core.api.commands:Command", ("core.api.cli:UsesHost",))},
    torch_free=("impl",),
    checks=("commands",),
)
