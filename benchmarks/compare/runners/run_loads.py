"""Send loads to a running server: `{"command": [...], "loads": {name: [flags]}, "session": of the server}`."""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from common import cpu_seconds, read_spec, report


def send(command: list[str]) -> dict[str, Any]:
    """Return the result of one `core bench serve`."""
    with tempfile.TemporaryDirectory() as folder:
        where = ["--save-result", "--result-dir", folder, "--result-filename", "result.json"]
        done = subprocess.run([*command, *where], capture_output=True, text=True, check=False)
        path = Path(folder) / "result.json"
        if done.returncode != 0 or not path.exists():
            raise SystemExit(f"the load failed: {(done.stderr or done.stdout)[-400:]}")
        result: dict[str, Any] = json.loads(path.read_text())
        return result


def main() -> None:
    """Send all of them."""
    spec = read_spec()
    before = cpu_seconds(spec["session"])
    results = {name: send([*spec["command"], *flags]) for name, flags in spec["loads"].items()}
    report(also=cpu_seconds(spec["session"]) - before, results=results)


if __name__ == "__main__":
    main()
