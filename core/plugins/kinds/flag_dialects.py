"""The kind `core.flag_dialects`: flags of other servers."""

from __future__ import annotations

from core.api.kinds import Contract, Kind

FLAG_DIALECT = Kind(
    group="core.flag_dialects",
    label="flag dialect",
    summary="flags of other servers",
    descriptor="core.api.descriptors:FlagDialectSpec",
    contracts={"impl": Contract("core.api.flags:FlagDialect")},
    torch_free=("impl",),
    checks=("flag_dialects",),
)
