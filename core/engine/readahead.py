"""Asks the operating system to read a checkpoint while the libraries that will decode it are still being imported."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

MOST = 4 * 2**30
"""Bytes that are asked for: a larger checkpoint could push its own beginning out of memory before that is used."""

STEP = 8 * 2**20
"""Bytes of one request: the call returns when the reading is under way, and later ones wait for the disk."""

_WEIGHTS = (".safetensors", ".gguf")


def read_ahead(checkpoint: Path) -> threading.Thread | None:
    """Have a checkpoint's weight files read, on a thread of its own; None where the system cannot be asked."""
    if not hasattr(os, "posix_fadvise"):
        return None
    thread = threading.Thread(target=_advise, args=(checkpoint,), name="read-ahead", daemon=True)
    thread.start()
    return thread


def _advise(checkpoint: Path) -> None:
    left = MOST
    try:
        for file in _files(checkpoint):
            with file.open("rb") as opened:
                size = min(os.fstat(opened.fileno()).st_size, left)
                for offset in range(0, size, STEP):
                    os.posix_fadvise(opened.fileno(), offset, min(STEP, size - offset), os.POSIX_FADV_WILLNEED)
                left -= size
    except OSError:
        return  # whoever reads the file reports what is wrong with it


def _files(checkpoint: Path) -> Iterator[Path]:
    if not checkpoint.is_dir():
        yield checkpoint
        return
    yield from sorted(path for path in checkpoint.iterdir() if path.suffix in _WEIGHTS)
