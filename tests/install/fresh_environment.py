"""A virtual environment that sees the dependencies of this one, but neither core, nor its plugins, nor this checkout.

Nothing is downloaded: the folders and metadata of the dependencies are linked, the rest is installed from wheels.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
from collections.abc import Collection, Iterator, Sequence
from importlib.metadata import Distribution, distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

_BUILD = """
import os, sys
from hatchling.build import build_wheel

target, *projects = sys.argv[1:]
for project in projects:
    os.chdir(project)
    build_wheel(target)
"""
"""One process for all: starting an interpreter for each step of each project takes longer than the steps."""


class Environment:
    """A virtual environment and how to run things in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.python = root / "bin" / "python"
        self.core = root / "bin" / "core"

    @property
    def site(self) -> Path:
        """Where packages are installed."""
        names = {"base": str(self.root), "platbase": str(self.root)}
        return Path(sysconfig.get_path("purelib", "venv", names))

    @property
    def variables(self) -> dict[str, str]:
        """This process's variables without those that lead back to the checkout or choose options."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("CORE_", "PYTHON", "PYTEST"))}
        path = os.pathsep.join([str(self.root / "bin"), kept.get("PATH", os.defpath)])
        return {**kept, "VIRTUAL_ENV": str(self.root), "PATH": path, "OMP_NUM_THREADS": "1"}

    def run(
        self, words: Sequence[str | Path], *, cwd: Path, timeout: float = 60, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in a directory and return what it said; the status is for the caller to judge."""
        return subprocess.run(
            list(map(str, words)),
            cwd=cwd,
            env={**self.variables, **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def install(self, wheels: Sequence[Path]) -> None:
        """Install wheels as they are, without asking an index."""
        self.pip("--no-deps", *wheels)

    def pip(self, *words: str | Path) -> None:
        """Run `pip install` with these words, without an index. Raises `RuntimeError` if it fails."""
        flags = ["--quiet", "--disable-pip-version-check", "--no-index"]
        checked([sys.executable, "-m", "pip", "--python", self.python, "install", *flags, *words], timeout=300)


def create(root: Path, names: Collection[str] | None = None, wheels: Sequence[Path] = ()) -> Environment:
    """Make an environment with the dependencies of this one.

    Args:
        names: Distributions; of the dependencies only those that these need are there, as on a machine of its own.
        wheels: Say what `names` need, if they are among them.
    """
    checked([sys.executable, "-m", "venv", "--without-pip", root])
    environment = Environment(root)
    wanted = None if names is None else closure(names, wheels)
    for path in sorted(set(_foreign_paths(wanted))):
        (environment.site / path.name).symlink_to(path)
    return environment


def build_wheels(projects: Sequence[Path], target: Path) -> list[Path]:
    """Build a wheel of each project with the build tools that are installed here."""
    plain = [path for path in projects if _backend(path) == "hatchling.build"]
    checked([sys.executable, "-P", "-c", _BUILD, target, *plain], timeout=300)
    flags = ["--quiet", "--disable-pip-version-check", "--no-deps", "--no-build-isolation", "--no-index"]
    command = [sys.executable, "-m", "pip", "wheel", *flags, "--wheel-dir", target]
    for path in projects:
        if path in plain:
            continue
        built = _compiled(path)
        if built is None:
            checked([*command, path], timeout=900)
            continue
        with tempfile.TemporaryDirectory() as folder:
            copy = _with_library(path, built, Path(folder) / path.name)
            checked([*command, "--config-settings", "wheel.cmake=false", copy], timeout=300)
    return sorted(target.glob("*.whl"))


def _backend(project: Path) -> str:
    return tomllib.loads((project / "pyproject.toml").read_text())["build-system"]["build-backend"]


def _compiled(project: Path) -> Path | None:
    """Return the library that installing this project compiled from the sources as they are now, if it did.

    Compiling takes a minute of a processor, and the installation from the checkout has just done it.
    """
    settings = tomllib.loads((project / "pyproject.toml").read_text())["tool"]["scikit-build"]
    sources = (project / settings["cmake"]["source-dir"]).resolve()
    newest = max(file.stat().st_mtime for file in (project / "pyproject.toml", *sources.rglob("*")) if file.is_file())
    place = Path(sysconfig.get_path("platlib"), settings["wheel"]["install-dir"])
    return next((file for file in place.glob("*.so") if file.stat().st_mtime > newest), None)


def _with_library(project: Path, library: Path, target: Path) -> Path:
    """Copy a project with what was compiled of it in the place where a build puts it."""
    settings = tomllib.loads((project / "pyproject.toml").read_text())["tool"]["scikit-build"]
    shutil.copytree(project, target, ignore=shutil.ignore_patterns("tests", "__pycache__"))
    shutil.copy2(library, target / "src" / settings["wheel"]["install-dir"])
    return target


def checked(words: Sequence[str | Path], timeout: float = 120) -> None:
    """Run a command; raise with what it said if it fails."""
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=timeout, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, words))} ended with {done.returncode}:\n{done.stdout}{done.stderr}")


def closure(names: Collection[str], wheels: Sequence[Path]) -> set[str]:
    """Return these distributions and what they need, what that needs, and so on; what `wheels` say comes first."""
    places = [*map(str, wheels), *sys.path]
    asked = [(canonicalize_name(name), "") for name in names]
    for name, extra in asked:  # grows while it is read
        found = next(iter(distributions(name=name, path=places)))
        for one in map(Requirement, found.requires or ()):
            if one.marker is None or one.marker.evaluate({"extra": extra}):
                needed = [(canonicalize_name(one.name), further) for further in ("", *one.extras)]
                asked += [pair for pair in needed if pair not in asked]
    return {name for name, _ in asked}


def paths_of(name: str) -> set[Path]:
    """Return everything at the top of site-packages that belongs to a distribution."""
    return {path for dist in distributions(name=name, path=_places()) for path in _tops(dist)}


def _foreign_paths(wanted: Collection[str] | None) -> Iterator[Path]:
    """Yield everything at the top of site-packages that belongs to a distribution which is wanted and not ours."""
    for dist in distributions(path=_places()):
        if not _is_ours(dist) and (wanted is None or canonicalize_name(dist.name) in wanted):
            yield from _tops(dist)


def _places() -> list[str]:
    return sorted({str(Path(sysconfig.get_path(name)).resolve()) for name in ("purelib", "platlib")})


def _tops(dist: Distribution) -> Iterator[Path]:
    tops = {file.parts[0] for file in dist.files or ()} - {"..", "__pycache__"}
    for place in map(Path, _places()):
        yield from (place / top for top in tops if not top.endswith(".pth") and (place / top).exists())


def _is_ours(dist: Distribution) -> bool:
    """Whether this is core, a plugin of it, or something that is installed from a checkout."""
    if dist.name == "core" or any(point.group.startswith("core.") for point in dist.entry_points):
        return True
    source = json.loads(dist.read_text("direct_url.json") or "{}")
    return bool(source.get("dir_info", {}).get("editable"))
