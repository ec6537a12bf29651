"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api import ToolParserSpec

DIRECTIVES = ToolParserSpec(
    name="directives",
    impl="acme_core_directives.parser:DirectiveParser",
    api=1,
    summary="Tool calls and reasoning as lines that begin with @@",
    markers=("@@call",),
)
