"""Metadata of core's distribution: the README as a package index can show it, with links that lead out of any page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"(?<=\]\()(?!https?://|#)(?=[^)\s])")


class ReadmeHook(MetadataHookInterface):
    """Fills in `readme`. In the repository its links are relative, so that they work in every copy and branch."""

    def update(self, metadata: dict[str, Any]) -> None:
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        pages = f"{metadata['urls']['Homepage']}/blob/main/"
        metadata["readme"] = {"content-type": "text/markdown", "text": _LINK.sub(pages, text)}
