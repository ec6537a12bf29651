"""Which servers of this user are running: a file for each, in a folder that only this user can write to.

A file that a killed server left behind is known by its process, which is gone or another one, and is removed by whoever
looks next.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any

from core.api.servers import RunningServer as Named
from core.version import __version__

_CLOCK = 2.0
"""Seconds by which two readings of when a process began may differ: the clock is set now and then."""

_MOST_BYTES = 65536
_TYPES: Mapping[str, type] = MappingProxyType({"pid": int, "started": float, "url": str, "model": str, "version": str})

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RunningServer:
    """One server.

    Attributes:
        started: When its process began, in seconds since 1970; with `pid` it names the process.
        url: `http://HOST:PORT`, or `unix:PATH`.
        model: Name of the model that it serves.
    """

    pid: int
    started: float
    url: str
    model: str
    version: str = __version__


class Registration:
    """This process's server in the folder. Without a place to write it is not listed, and serves all the same."""

    def __init__(self, url: str, model: str) -> None:
        self._url, self._model = _absolute(url), model
        self._path: Path | None = None

    def write(self) -> None:
        """Say that the server is there."""
        import psutil

        process = psutil.Process()
        server = RunningServer(process.pid, process.create_time(), self._url, self._model)
        try:
            folder = registry_folder()
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            if not _ours(folder):
                raise PermissionError(f"{folder} can be written to by other users")
            path = folder / f"{process.pid}.json"
            fresh = path.with_suffix(".new")
            fresh.write_text(json.dumps(asdict(server)), encoding="utf-8")
            self._path = fresh.replace(path)
        except OSError as error:
            _log.debug("this server will not be listed by `core ps`: %s", error)

    def remove(self) -> None:
        """Say that it is gone. Harmless when called again, or before `write`."""
        if self._path is not None:
            _remove(self._path)


def registry_folder() -> Path:
    """Return the folder: in `XDG_RUNTIME_DIR`, which ends with the session, or else where the user's state is kept."""
    base = os.environ.get("XDG_RUNTIME_DIR") or os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(base).expanduser() / "core" / "servers"


def running_servers() -> list[RunningServer]:
    """Return the servers that are running, in the order of their starts; files of others are removed.

    Nothing is read where other users can write: what is told there could have `core stop` end any of our processes.
    """
    folder = registry_folder()
    return sorted(_running(folder), key=lambda server: server.started) if _ours(folder) else []


def reachable(url: str) -> str:
    """Return an address that a client can use, of one that a server listens on: any address is this machine's."""
    return url.replace("//0.0.0.0", "//127.0.0.1").replace("//[::]", "//[::1]")


def is_running(server: Named) -> bool:
    """Say whether the process is there and is the one that was registered."""
    import psutil

    try:
        process = psutil.Process(server.pid)
        same = abs(process.create_time() - server.started) < _CLOCK
        return bool(same and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def terminate(server: Named) -> None:
    """Ask the process to end; harmless when it has."""
    import psutil

    # The number could be another program's by now.
    if is_running(server):
        with suppress(psutil.Error):
            psutil.Process(server.pid).terminate()


def _running(folder: Path) -> Iterator[RunningServer]:
    for path in folder.glob("*.json"):
        server = _read(path)
        if server is not None and is_running(server):
            yield server
        else:
            _remove(path)


def _read(path: Path) -> RunningServer | None:
    try:
        if not path.is_file() or path.is_symlink() or path.stat().st_size > _MOST_BYTES:
            return None  # a pipe would be waited for
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        known = {field.name: found[field.name] for field in fields(RunningServer)}
    except (OSError, ValueError, TypeError, LookupError, RecursionError):
        return None
    server = RunningServer(**known)
    right = all(type(known[name]) is kind for name, kind in _TYPES.items())
    return server if right and str(server.pid) == path.stem and server.pid > 0 < server.started else None


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:  # a folder, or a file system that can only be read
        _log.debug("%s stays: %s", path, error)


def _ours(folder: Path) -> bool:
    """Say whether the folder is there and this user alone can write to it."""
    try:
        found = folder.stat()
    except OSError:
        return False
    return not hasattr(os, "getuid") or (found.st_uid == os.getuid() and not found.st_mode & 0o022)


def _absolute(url: str) -> str:
    return f"unix:{os.path.abspath(url.removeprefix('unix:'))}" if url.startswith("unix:") else url
