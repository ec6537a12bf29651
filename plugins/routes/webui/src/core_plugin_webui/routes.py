"""The page's files, for everybody; what the page asks for needs the key like all else."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from pathlib import PurePath
from types import MappingProxyType
from typing import Any

from core.api.routes import EngineClient, RouteRegistry

PAGE = "index.html"
FILES = (
    PAGE,
    "style.css",
    "icon.svg",
    "answers.mjs",
    "app.mjs",
    "ask.mjs",
    "dom.mjs",
    "files.mjs",
    "markdown.mjs",
    "messages.mjs",
    "page.mjs",
    "records.mjs",
    "settings.mjs",
    "sse.mjs",
    "store.mjs",
)
_TYPES = MappingProxyType(
    {".html": "text/html", ".css": "text/css", ".svg": "image/svg+xml", ".mjs": "text/javascript"}
)

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


class WebUiRoutes:
    """Files and nothing else."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        folder = files("core_plugin_webui") / "static"
        self._files = {name: (folder / name).read_bytes() for name in FILES}

    def declare(self, registry: RouteRegistry) -> None:
        """Declare the files."""
        for name, content in self._files.items():
            kind = f"{_TYPES[PurePath(name).suffix]}; charset=utf-8"
            path = "/" if name == PAGE else f"/ui/{name}"
            registry.asset(path, content, kind, headers={"content-security-policy": POLICY})

    def bind(self, client: EngineClient) -> None:
        """Nothing runs here."""
