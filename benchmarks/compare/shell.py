"""Commands and virtual environments of the set-up."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.compare.process import last_words


class SetupError(Exception):
    """An environment could not be made; the text says why."""


def run(*command: str, folder: Path | None = None) -> str:
    """Run a command and return what it printed.

    Raises:
        SetupError: It is not there or it failed.
    """
    try:
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
    except OSError as error:
        raise SetupError(f"{Path(command[0]).name}: {error.strerror}") from None
    if done.returncode != 0:
        raise SetupError(f"{Path(command[0]).name} failed: {last_words(done.stderr or done.stdout)}")
    return done.stdout.strip()


def make_venv(folder: Path, name: str, *packages: str) -> Path:
    """Make an environment with packages, or add them to one, and return its folder of programs."""
    programs = folder / "venv" / name / "bin"
    if not (programs / "python").exists():
        run(sys.executable, "-m", "venv", str(programs.parent))
    if packages:
        run(str(programs / "python"), "-m", "pip", "install", "--quiet", *packages)
    return programs
