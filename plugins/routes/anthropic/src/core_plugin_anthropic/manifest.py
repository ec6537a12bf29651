"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api import RouteSpec

ANTHROPIC = RouteSpec(
    name="anthropic",
    impl="core_plugin_anthropic.routes:AnthropicRoutes",
    api=1,
    summary="Anthropic's Messages API: /v1/messages",
    mounts=("/v1/messages",),
    automatic=True,
)
