"""Before an installation: say so when pip would bring torch with gigabytes of accelerator packages to this machine.

Run with the interpreter of the environment that is about to be filled: `.venv/bin/python tools/torch_guard.py`.
Exit status 1 means: stop, the message says what to choose. Environment: `TORCH_INDEX`, `TORCH`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

try:
    from packaging.requirements import Requirement
except ImportError:  # a fresh environment has pip only, and pip carries its own copy
    from pip._vendor.packaging.requirements import Requirement

_ROOT = Path(__file__).resolve().parent.parent
_CONSTRAINTS = _ROOT / "constraints.txt"
_ACCELERATOR = ("nvidia-", "cuda-", "triton", "pytorch-triton", "amd-", "rocm-", "intel-", "mkl-dpcpp")

_ADVICE = """\
pip would install torch {version} together with {count} accelerator packages ({some}), several gigabytes.
Without such an accelerator choose the CPU build: set TORCH_INDEX to the address of the CPU index that the "Get started"
selector of PyTorch's site shows, and run the same command again. To accept what pip chose, set TORCH=any."""


def accelerator_packages(requires: Iterable[str]) -> list[str]:
    """Return the names of the accelerator packages among `requires` whose markers hold on this machine."""
    wanted = [Requirement(text) for text in requires]
    return sorted(
        one.name
        for one in wanted
        if one.name.lower().startswith(_ACCELERATOR) and (one.marker is None or one.marker.evaluate({"extra": ""}))
    )


def decide(report: Mapping[str, Any], accept_any: bool) -> str | None:
    """Return what is wrong with the torch that pip's installation report names, or None."""
    for item in report.get("install", ()):
        facts = item["metadata"]
        if facts["name"].lower() != "torch" or accept_any:
            continue
        if found := accelerator_packages(facts.get("requires_dist", ())):
            some = ", ".join(found[:3]) + (", ..." if len(found) > 3 else "")
            return _ADVICE.format(version=facts["version"], count=len(found), some=some)
    return None


def installed_fits(constraints: str) -> bool:
    """Say whether a torch is installed that the lines of `constraints` allow."""
    try:
        version = metadata.version("torch")
    except metadata.PackageNotFoundError:
        return False
    lines = (line.split("#")[0].strip() for line in constraints.splitlines())
    limits = [Requirement(line) for line in lines if line and not line.startswith("-")]
    return all(one.specifier.contains(version, prereleases=True) for one in limits if one.name.lower() == "torch")


def ask_pip(index: str | None) -> Mapping[str, Any]:
    """Return pip's report on what `pip install torch` would take. Raises `CalledProcessError` if pip fails."""
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", "--no-deps", "--report", "-"]
    command += ["-c", str(_CONSTRAINTS)] if _CONSTRAINTS.exists() else []
    command += ["--index-url", index] if index else []
    answer = subprocess.run([*command, "torch"], check=True, capture_output=True, text=True)
    report: Mapping[str, Any] = json.loads(answer.stdout)
    return report


def main() -> int:
    """Check, and return the exit status."""
    constraints = _CONSTRAINTS.read_text() if _CONSTRAINTS.exists() else ""
    if installed_fits(constraints):
        return 0
    try:
        report = ask_pip(os.environ.get("TORCH_INDEX"))
    except subprocess.CalledProcessError as error:
        print(f"pip finds no torch to install:\n{error.stderr.strip()}", file=sys.stderr)
        return 1
    problem = decide(report, os.environ.get("TORCH") == "any")
    if problem:
        print(problem, file=sys.stderr)
    return 1 if problem else 0


if __name__ == "__main__":
    sys.exit(main())
