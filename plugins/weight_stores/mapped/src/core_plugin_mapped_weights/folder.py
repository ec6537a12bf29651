"""The folder of the files: names, who may write there, how much there may be. Torch-free."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

log = logging.getLogger(__name__)

ENDING, PART = ".safetensors", ".part"
MOST = 50 * 2**30
SHARE = 10
"""Of the free disk, a tenth."""

_KEY = re.compile(r"[0-9a-f]{64}")


class Folder:
    """A folder in which a file is called by its key.

    Args:
        max_bytes: Most that all files take; None: `MOST`, or a share of the disk that is free.
    """

    def __init__(self, path: Path, max_bytes: int | None) -> None:
        self.path, self._max_bytes = path, max_bytes

    def file(self, key: str) -> Path:
        """Return the file of a key. Raises `ValueError` for what is none."""
        if not _KEY.fullmatch(key):
            raise ValueError(f"{key!r} is no key: 64 hexadecimal digits are due")
        return self.path / f"{key}{ENDING}"

    def part(self, key: str) -> Path:
        """Return the file that is written before it gets its name."""
        return self.file(key).with_suffix(PART)

    def files(self) -> Iterator[tuple[str, Path, os.stat_result]]:
        """Yield every file with its key."""
        for path in sorted(self.path.glob(f"*{ENDING}")):
            with contextlib.suppress(OSError):
                if _KEY.fullmatch(path.stem):
                    yield path.stem, path, path.lstat()

    def prepare(self) -> None:
        """Make the folder, and remove what a writer that is gone left there. Raises `OSError`."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in self.path.glob(f"*{PART}"):
            if not _KEY.fullmatch(path.stem):
                continue
            with contextlib.suppress(OSError):
                file = locked(path, create=False)
                if file is not None:
                    path.unlink()
                    os.close(file)

    def make_room(self, num_bytes: int, key: str) -> str:
        """Remove files that were not used for longest until `num_bytes` more fit; return why they cannot, or ''."""
        kept = [one for one in self.files() if one[0] != key]
        taken, free = sum(found.st_size for _, _, found in kept), shutil.disk_usage(self.path).free
        most = min(MOST, (free + taken) // SHARE) if self._max_bytes is None else self._max_bytes
        if num_bytes > most:
            return f"they take {num_bytes} bytes, and {most} are allowed (option max_bytes)"
        if num_bytes > free + taken:
            return f"they take {num_bytes} bytes, and {free + taken} are free"
        for _, path, found in sorted(kept, key=lambda one: one[2].st_mtime):
            if taken + num_bytes <= most and num_bytes <= free:
                break
            log.info("packed weights in %s give way: they were not used for longest", path)
            path.unlink(missing_ok=True)
            taken, free = taken - found.st_size, free + found.st_size
        return ""


def fault_of(found: os.stat_result) -> str:
    """Return why a file or folder is not to be trusted, or ''."""
    if found.st_uid not in (0, os.geteuid()):
        return "it belongs to another user"
    return "others can write to it" if found.st_mode & 0o022 else ""


def locked(path: Path, *, create: bool) -> int | None:
    """Open a file that no other process, and no other thread, writes; None where one does. Raises `OSError`."""
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_CREAT if create else 0)
    file = os.open(path, flags, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(file), os.lstat(path)):  # it may have got its final name meanwhile
            return file
    except BlockingIOError:
        pass
    except FileNotFoundError:
        pass
    except BaseException:
        os.close(file)
        raise
    os.close(file)
    return None
