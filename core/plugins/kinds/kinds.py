"""The entry-point group `core.kinds`: kinds that plugins define. It is listed with them, and no kind itself."""

from __future__ import annotations

from core.api.kinds import Kind

KIND = Kind(
    group="core.kinds",
    label="kind of plugin",
    summary="kinds that plugins define",
    checks=("kinds",),
)
