"""Where compiled pieces are kept between starts.

They are code: the folder is the user's alone, and what is read must be what was written. A file is named by the hash
of what is in it, so equal ones are there once; a key names the file.
"""

from __future__ import annotations

import json
import logging
import os
import stat
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from core_plugin_torch_compile.options import LOGGER

_LOG = logging.getLogger(LOGGER)


def folder() -> Path:
    """Return where they are: in `XDG_CACHE_HOME`, `~/.cache` by default."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "core" / "torch_compile"


class Store:
    """Reads and writes what belongs to keys. Nothing here ends a start: what cannot be used is compiled anew."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def load(self, key: str) -> tuple[bytes, float] | None:
        """Return what is kept under a key, and the seconds that it took to compile; None if there is nothing sound."""
        if not self._root.is_dir() or not self._private():
            return None
        try:
            note = json.loads((self._root / f"{key}.json").read_text())
            name, seconds = str(note["file"]), float(note["seconds"])
            data = (self._root / f"{Path(name).name}.bin").read_bytes()
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            _LOG.warning("torch_compile: %s cannot be read (%s); it is compiled anew.", self._root / key, error)
            return None
        if sha256(data).hexdigest() == name:
            return data, seconds
        _LOG.warning("torch_compile: %s is damaged; it is compiled anew.", self._root / f"{name}.bin")
        with suppress(OSError):
            (self._root / f"{name}.bin").unlink()
        return None

    def save(self, key: str, data: bytes, seconds: float) -> None:
        """Keep something under a key; a reader sees all of it or nothing."""
        name = sha256(data).hexdigest()
        try:
            self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not self._private():
                return
            if not (self._root / f"{name}.bin").is_file():
                self._write(f"{name}.bin", data)
            self._write(f"{key}.json", json.dumps({"file": name, "seconds": round(seconds, 3)}).encode())
        except OSError as error:
            _LOG.warning("torch_compile: nothing can be kept in %s (%s).", self._root, error)

    def _private(self) -> bool:
        """Whether nobody else can put anything there."""
        found = self._root.stat()
        if found.st_uid == os.geteuid() and not stat.S_IMODE(found.st_mode) & 0o077:
            return True
        _LOG.warning(
            "torch_compile: %s is not used, since others can read or write it: compiled pieces are code. "
            "Make it yours alone (chmod 700), or remove it.",
            self._root,
        )
        return False

    def _write(self, name: str, data: bytes) -> None:
        own = self._root / f".{name}.{os.getpid()}"
        own.write_bytes(data)
        own.replace(self._root / name)
