"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api import RouteSpec

OLLAMA = RouteSpec(
    name="ollama",
    impl="core_plugin_ollama.routes:OllamaRoutes",
    api=1,
    summary="Ollama's API: /api/chat, /api/generate, /api/embed, /api/tags, ...",
    mounts=("/api", "/"),
    public=("/",),
    options="core_plugin_ollama.options:OllamaOptions",
)
