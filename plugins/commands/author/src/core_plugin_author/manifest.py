"""What this distribution offers, as data."""

from __future__ import annotations

from core.api import CommandSpec

NEW = CommandSpec(
    name="plugins-new",
    impl="core_plugin_author.new:New",
    api=1,
    summary="Write a plugin that works, to be changed into yours.",
)
