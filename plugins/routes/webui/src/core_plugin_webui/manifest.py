"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api import RouteSpec

WEBUI = RouteSpec(
    name="webui",
    impl="core_plugin_webui.routes:WebUiRoutes",
    api=1,
    summary="A chat page at / and a view for operators at /ui/operator; works without a network",
    mounts=("/", "/ui"),
    public=("/", "/ui"),
)
