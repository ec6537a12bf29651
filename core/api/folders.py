"""Temporary folders of processes, cleared at the next start where a process could not do so itself."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from pathlib import Path

PREFIX = "core-"
_OWNER = "owner"
_CLAIM = "owner.new"


class PrivateFolder:
    """A temporary folder that only this user can enter, and that belongs to this process while it lives.

    The process holds a lock in it, which ends with the process however that ends: a folder whose lock is free is
    nobody's any more. A process id would not do, since another process may have it by then.

    Attributes:
        path: The folder.
    """

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
        self._lock = -1
        try:
            # It gets its name when it is locked: until then nobody takes the folder for one that was left.
            self._lock = os.open(self.path / _CLAIM, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            os.rename(self.path / _CLAIM, self.path / _OWNER)
        except BaseException:
            self.remove()
            raise

    def remove(self) -> None:
        """Remove the folder with all that is in it. Harmless when called again."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def clear_left() -> int:
    """Remove the folders of this user whose processes are gone; return how many there were."""
    return sum(map(_clear, Path(tempfile.gettempdir()).glob(f"{PREFIX}*")))


def _clear(folder: Path) -> bool:
    """Remove a folder if it was left. What is not certainly one of ours stays."""
    with contextlib.suppress(OSError):
        found = os.lstat(folder)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) != 0o700:
            return False
        lock = os.open(folder / _OWNER, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder)
        finally:
            os.close(lock)
        return True
    return False
