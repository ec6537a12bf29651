"""For which devices the installed torch was built, read without importing it."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

_LINE = re.compile(r"""^(__version__|cuda|hip|xpu)\b[^=\n]*=\s*(?:None|['"]([^'"\n]*)['"])\s*$""", re.MULTILINE)


class TorchBuild(NamedTuple):
    """Build of torch, as `torch/version.py` describes it.

    Attributes:
        version: `2.13.0+cpu`; empty if torch is not installed.
        cuda, hip, xpu: Versions of the runtimes it was built for; empty: not for that one.
    """

    version: str = ""
    cuda: str = ""
    hip: str = ""
    xpu: str = ""

    def lacks(self, runtime: str, index: str) -> str:
        """Return why devices of a runtime cannot be used with it; empty if they can.

        Args:
            runtime: `cuda`, `hip` or `xpu`.
            index: Whose wheels run on them: `CUDA`, `ROCm`, `XPU`.
        """
        if not self.version:
            return f"torch is not installed; install it from pytorch.org's index for {index} (docs/installation.md)"
        if getattr(self, runtime):
            return ""
        built = next((name for name in ("cuda", "hip", "xpu") if getattr(self, name)), "")
        for_what = f"for {built}" if built else "for the CPU alone"
        return (
            f"the installed torch {self.version} is built {for_what}; install one from pytorch.org's index for {index} "
            "(docs/installation.md)"
        )


def torch_build() -> TorchBuild:
    """Return what the installed torch was built for."""
    try:
        spec = find_spec("torch")
    except (ImportError, ValueError):  # ValueError: somebody keeps it from being imported
        return TorchBuild()
    if spec is None or spec.origin is None:
        return TorchBuild()
    try:
        text = (Path(spec.origin).parent / "version.py").read_text(encoding="utf-8")
    except OSError:
        return TorchBuild()
    return parse(text)


def parse(text: str) -> TorchBuild:
    """Return what a `version.py` says."""
    said = {name.strip("_"): value or "" for name, value in _LINE.findall(text)}
    return TorchBuild(**said)
