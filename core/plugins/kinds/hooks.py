"""The kind `core.plugins`: behaviours at moments."""

from __future__ import annotations

from core.api.kinds import Kind

HOOKS = Kind(
    group="core.plugins",
    label="hook plugin",
    summary="behaviours at moments",
    checks=("hooks",),
)
