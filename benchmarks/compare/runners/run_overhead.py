"""What core costs without a model: its scheduler (`engine_overhead.py`) and its server (`api_overhead.py`)."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from common import report

BENCHMARKS = Path(__file__).resolve().parent.parent.parent
PARTS = {"engine_overhead": ("--rows", "1", "32", "1000"), "api_overhead": ("--streams", "1", "32", "1000")}


def run(name: str, flags: tuple[str, ...]) -> Any:
    """Return what one script measured."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "result.json"
        command = [sys.executable, str(BENCHMARKS / f"{name}.py"), *flags, "--json", str(path)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return json.loads(path.read_text())[name]


def main() -> None:
    """Run both."""
    report(**{name: run(name, flags) for name, flags in PARTS.items()})


if __name__ == "__main__":
    main()
