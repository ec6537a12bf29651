"""Finds and loads `libcore_cpu`, once. Torch-free.

`CORE_CPU_LIBRARY` names another library file, or `none` to do without. `CORE_CPU_ISA` bounds the instruction set.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

ABI = 17
"""Result of `core_cpu_abi()` of a matching library. Packed weights that are kept are of one ABI: a packing that
comes to lie in memory in another way takes another number.
"""

FILE = "libcore_cpu.so"

REMEDY = "install g++ with your package manager, then: pip install --force-reinstall --no-deps core-plugin-cpu"


@dataclass(frozen=True, slots=True)
class Native:
    """The outcome of loading: a library, or the reason why there is none."""

    library: ctypes.CDLL | None
    path: str
    reason: str


def available() -> bool:
    """Whether the native kernels can be called."""
    return _native().library is not None


def isa() -> str:
    """Return the instruction set in use (`avx512_bf16`), or an empty string without the library."""
    library = _native().library
    return "" if library is None else str(library.core_cpu_isa().decode())


def reason() -> str:
    """Return why the native kernels cannot be called, or an empty string."""
    return _native().reason


def library() -> ctypes.CDLL:
    """Return the loaded library. Raises `RuntimeError` with `reason()` where there is none."""
    native = _native()
    if native.library is None:
        raise RuntimeError(f"the native CPU library is not available: {native.reason}")
    return native.library


def select_isa(name: str) -> None:
    """Use the instruction set `name` from now on. Raises `ValueError` if the machine or the library lacks it."""
    if library().core_cpu_select_isa(name.encode()) != 0:
        raise ValueError(f"instruction set '{name}' is unknown or not available here")


@cache
def _native() -> Native:
    wanted = os.environ.get("CORE_CPU_LIBRARY", "")
    if wanted.lower() == "none":
        return Native(None, "", "CORE_CPU_LIBRARY=none")
    paths = [Path(wanted)] if wanted else list(_installed())
    if not paths:
        return Native(None, "", "this installation was built without a C++ compiler")
    return _load(paths[0])


def _installed() -> Iterator[Path]:
    """An editable installation has this package in two folders: the sources, and what was built."""
    from core_plugin_cpu import native

    for folder in native.__path__:
        path = Path(folder) / FILE
        if path.is_file():
            yield path


def _load(path: Path) -> Native:
    try:
        # The library brings no OpenMP runtime: it binds to the one that is global when it is loaded, and torch's must
        # be that one, because two runtimes would mean two sets of threads on the same cores.
        _load_openmp()
        loaded = ctypes.CDLL(str(path))
        loaded.core_cpu_abi.restype = ctypes.c_int64
        loaded.core_cpu_isa.restype = ctypes.c_char_p
        loaded.core_cpu_select_isa.restype = ctypes.c_int64
        abi = loaded.core_cpu_abi()
    except (OSError, AttributeError) as error:
        return Native(None, str(path), f"{path} cannot be loaded: {error}")
    if abi != ABI:
        return Native(None, str(path), f"{path} has ABI {abi}, this package needs {ABI}")
    return Native(loaded, str(path), "")


def _load_openmp() -> None:
    """Make torch's OpenMP runtime global, else the system's; without any, kernels run on the calling thread."""
    for name in (*_torch_openmp(), "libgomp.so.1"):
        try:
            ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)
        except OSError:
            continue
        return


def _torch_openmp() -> list[str]:
    """Return the runtime that torch's distribution carries, by path; finding it does not import torch."""
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        return []
    root = Path(spec.origin).parent
    folders = (root / "lib", root.parent / "torch.libs")
    return [str(path) for folder in folders for path in sorted(folder.glob("libgomp*.so*"))]
