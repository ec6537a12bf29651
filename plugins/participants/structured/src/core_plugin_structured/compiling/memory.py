"""How much memory this process holds: what a compiled grammar takes is measured, not guessed."""

from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any


class _MallInfo(ctypes.Structure):
    """`struct mallinfo2` of glibc."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    ]


@dataclass(frozen=True, slots=True)
class Footprint:
    """Memory at one moment.

    Attributes:
        allocated: Bytes that the C library has given out; 0 where it does not tell.
        resident: Bytes of physical memory, what could be given back left out; 0 where the system does not tell.
    """

    allocated: int
    resident: int

    def since(self, before: Footprint) -> int:
        """Return the bytes that came on top since `before`.

        The larger of both counts: resident memory does not show what is written into memory that was freed before,
        the C library does not see what others (Python's own allocator, `mmap`) have taken.
        """
        return max(self.allocated - before.allocated, self.resident - before.resident, 0)


def footprint() -> Footprint:
    """Return the memory that this process holds now."""
    library = _library()
    allocated = 0
    if library is not None:
        library.malloc_trim(0)
        info = library.mallinfo2()
        allocated = info.uordblks + info.hblkhd
    return Footprint(allocated, _pages(1))


def virtual_size() -> int:
    """Return the bytes of this process's address space; 0 where the system does not tell."""
    return _pages(0)


def _pages(field: int) -> int:
    try:
        import resource

        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[field]) * resource.getpagesize()
    except (ImportError, OSError, ValueError):
        return 0


@cache
def _library() -> Any:
    """Return the C library if it tells what it has given out (glibc from 2.33), else None."""
    if not sys.platform.startswith("linux"):
        return None
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallinfo2") or not hasattr(library, "malloc_trim"):
        return None
    library.mallinfo2.restype = _MallInfo
    return library
