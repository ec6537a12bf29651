"""Results on disk: one JSON file per variant, group and round, so that a run can be interrupted and resumed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class Store:
    """The results in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def has(self, variant: str, group: str, turn: int, *, others: float = 1.0) -> bool:
        """Whether there is a result that did not fail and during which others used at most a share of the machine."""
        path = self._path(variant, group, turn)
        record: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"error": ""}
        return "error" not in record and record["data"].get("others", 0.0) <= others

    def put(self, variant: str, group: str, turn: int, record: dict[str, Any]) -> None:
        """Keep a result."""
        path = self._path(variant, group, turn)
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps({"variant": variant, "group": group, "round": turn, **record}, indent=1) + "\n")
        partial.replace(path)

    def forget(self, variant: str, group: str) -> None:
        """Drop the results of all rounds."""
        for path in self._folder.glob(f"{variant}.{group}.*.json"):
            path.unlink()

    def all(self, variant: str, group: str) -> list[dict[str, Any]]:
        """Return the results that did not fail, by round."""
        return [record for record in self._read(variant, group) if "error" not in record]

    def group(self, group: str) -> dict[str, dict[str, Any]]:
        """Return variant -> its last result that did not fail."""
        names = sorted({path.name.split(f".{group}.")[0] for path in self._folder.glob(f"*.{group}.*.json")})
        found = {name: self.all(name, group) for name in names}
        return {name: records[-1] for name, records in found.items() if records}

    def errors(self, variant: str, group: str) -> list[str]:
        """Return why results are missing."""
        return [record["error"] for record in self._read(variant, group) if "error" in record]

    def _read(self, variant: str, group: str) -> Iterator[dict[str, Any]]:
        for path in sorted(self._folder.glob(f"{variant}.{group}.*.json")):
            yield json.loads(path.read_text())

    def _path(self, variant: str, group: str, turn: int) -> Path:
        return self._folder / f"{variant}.{group}.{turn}.json"
