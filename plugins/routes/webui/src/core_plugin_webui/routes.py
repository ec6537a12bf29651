"""The pages' files, for everybody; what the pages ask for needs a key like all else."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import PurePath
from types import MappingProxyType
from typing import Any

from core.api.routes import EngineClient, RouteRegistry

INDEX = "build.json"
PATHS = MappingProxyType({"index.html": "/", "operator.html": "/ui/operator"})
"""File -> its path, where that is not `/ui/` and the file's name."""

TYPES = MappingProxyType(
    {
        ".css": "text/css",
        ".html": "text/html",
        ".js": "text/javascript",
        ".svg": "image/svg+xml",
        ".txt": "text/plain",
    }
)

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types dompurify"
)
"""Nothing from elsewhere, nothing inline, and no text becomes markup but through DOMPurify. Pictures that are part of
an answer are `data:` addresses.
"""

logger = logging.getLogger(__name__)


class WebUiRoutes:
    """Files and nothing else."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        package = files("core_plugin_webui")
        self._files = dict(_built(package / "static"))
        if not self._files:
            logger.warning("the web pages are not built; / says how")
            self._files = {"index.html": (package / "unbuilt.html").read_bytes()}

    def declare(self, registry: RouteRegistry) -> None:
        """Declare the files."""
        for name, content in self._files.items():
            kind = f"{TYPES[PurePath(name).suffix]}; charset=utf-8"
            path = PATHS.get(name, f"/ui/{name}")
            registry.asset(path, content, kind, headers={"content-security-policy": POLICY})

    def bind(self, client: EngineClient) -> None:
        """Nothing runs here."""


def _built(folder: Traversable) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the content of every file that was built; nothing in a checkout where that was not done."""
    try:
        index = json.loads((folder / INDEX).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return
    for name in index["files"]:
        yield name, (folder / name).read_bytes()
