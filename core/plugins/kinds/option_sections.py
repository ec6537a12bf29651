"""The kind `core.option_sections`: options of plugins as flags of their own."""

from __future__ import annotations

from core.api.kinds import Kind

OPTION_SECTION = Kind(
    group="core.option_sections",
    label="option section",
    summary="options of plugins as flags of their own",
    descriptor="core.api.descriptors:OptionSection",
    torch_free=("impl",),
    checks=("option_sections",),
)
