"""tools/catalogue_cost.py measures what it says, and nothing heavy is on the way."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_the_figures_add_up_and_pydantic_takes_no_part():
    command = [sys.executable, ROOT / "tools" / "catalogue_cost.py", "--runs", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert "imported on the way" not in done.stdout
    plugins = int(re.match(r"(\d+) plugins of this repository among \d+ installed", done.stdout)[1])
    taken = {name: float(text) for name, text in re.findall(r"^(\S+) +([\d.]+) ms$", done.stdout, re.MULTILINE)}
    assert plugins > 20 and list(taken) == ["core.api", "catalogue", "manifests", "total", "descriptors"]
    # Each is a median of its own, so that their sum is the total's only nearly.
    assert 0.5 * taken["total"] < taken["core.api"] + taken["catalogue"] + taken["manifests"] < 2 * taken["total"]
