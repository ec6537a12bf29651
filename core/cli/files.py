"""Files that are there as a whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


@contextmanager
def replaced(path: Path) -> Iterator[IO[bytes]]:
    """Yield a new file that takes the place of `path` when the block ends well; a reader never sees half of it."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        # Temporary files are private; this one is as public as any that the user makes.
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def write_whole(path: Path, data: bytes) -> None:
    """Write a file in one piece. Raises `OSError`."""
    with replaced(path) as file:
        file.write(data)


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
