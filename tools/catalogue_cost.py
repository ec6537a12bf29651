"""Measure what finding the plugins costs: `python tools/catalogue_cost.py [--runs N]`.

Every run is a fresh interpreter that imports nothing of core before the clock starts; its own start is not counted, and
compiled files are in place. Each run does, one after the other, what every command does that looks at plugins:

    core.api     import the public interface with the descriptors
    catalogue    import the catalogue's module and read the metadata of every installed distribution
    manifests    import the entry point of every plugin of this repository
    descriptors  load and check them through stevedore, as `core plugins list` does: not hooks, and not in the total
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tomllib
from itertools import pairwise
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent
_STEPS = ("core.api", "catalogue", "manifests")
_CHILD = """
import sys, time
marks = [time.perf_counter()]
from core.api import Descriptor
marks.append(time.perf_counter())
from core.plugins.catalog import Catalogue
catalogue = Catalogue.scan()
marks.append(time.perf_counter())
mine = [entry for entry in catalogue.every() if entry.dist in sys.argv[1:]]
for entry in mine:
    entry.load()
marks.append(time.perf_counter())
from core.plugins.drivers import load_descriptors
from core.plugins.kinds import HOOKS_GROUP
for group in sorted({entry.group for entry in mine} - {HOOKS_GROUP}):
    load_descriptors([entry for entry in mine if entry.group == group])
marks.append(time.perf_counter())
import importlib.metadata, json
heavy = [name for name in ("pydantic", "torch", "numpy") if name in sys.modules]
total = len(list(importlib.metadata.distributions()))
print(json.dumps({"marks": marks, "plugins": len(mine), "distributions": total, "heavy": heavy}))
"""


def names(root: Path) -> list[str]:
    """Return the distributions in `root/plugins`."""
    files = sorted(root.glob("plugins/*/*/pyproject.toml"))
    return [str(tomllib.loads(file.read_text(encoding="utf-8"))["project"]["name"]) for file in files]


def once(dists: list[str]) -> dict[str, float]:
    """Return milliseconds per step of one fresh interpreter, and how much there was to find."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("CORE_")}
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, *dists], env=environ, cwd=_ROOT, capture_output=True, text=True, check=True
    )
    told = json.loads(done.stdout.splitlines()[-1])
    marks = told.pop("marks")
    spent = [(after - before) * 1000 for before, after in pairwise(marks)]
    return {**dict(zip((*_STEPS, "descriptors"), spent)), "total": sum(spent[: len(_STEPS)]), **told}


def measure(runs: int, dists: list[str]) -> dict[str, float]:
    """Return the median of every figure over `runs` interpreters, after one that is not counted."""
    once(dists)
    taken = [once(dists) for _ in range(runs)]
    return {name: statistics.median(one[name] for one in taken) for name in (*_STEPS, "total", "descriptors")} | {
        name: taken[0][name] for name in ("plugins", "distributions", "heavy")
    }


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description="Measure what finding the plugins costs.")
    parser.add_argument("--runs", type=int, default=15, help="Fresh interpreters (at least 9).")
    found = measure(max(9, parser.parse_args().runs), names(_ROOT))
    print(f"{found['plugins']} plugins of this repository among {found['distributions']} installed distributions")
    for name in (*_STEPS, "total", "descriptors"):
        print(f"{name:12} {found[name]:6.1f} ms")
    if found["heavy"]:
        print(f"imported on the way: {', '.join(found['heavy'])}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
