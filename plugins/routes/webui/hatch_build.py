"""Builds the pages into the distribution. A checkout that is installed without npm has none, and says so when asked."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class PageHook(BuildHookInterface[Any]):
    """Runs `web/build.py`, which does nothing where the pages are up to date, as in a source distribution."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build; without the pages only an editable installation goes on."""
        build = _build_module(Path(self.root, "web", "build.py"))
        try:
            build.build()
        except build.BuildError as error:
            if version != "editable":
                raise
            self.app.display_warning(str(error))


def _build_module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("core_plugin_webui_build", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
