"""Directories that a plugin may think its own."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from pathlib import Path

_HOMES = ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME")
_TEMPORARY = ("TMPDIR", "TEMP", "TMP")


@contextmanager
def fresh_folder() -> Iterator[Path]:
    """Make a new empty directory the working directory, home and place of temporary files; remove it at the end.

    So that whatever a plugin leaves where it has no other directory to use is seen by nobody afterwards.
    """
    before = {name: os.environ.get(name) for name in (*_HOMES, *_TEMPORARY)}
    place = tempfile.tempdir
    with tempfile.TemporaryDirectory(prefix="core-conformance-") as made:
        home, temporary = Path(made) / "home", Path(made) / "tmp"
        home.mkdir()
        temporary.mkdir()
        try:
            os.environ.update({**dict.fromkeys(_HOMES, str(home)), **dict.fromkeys(_TEMPORARY, str(temporary))})
            tempfile.tempdir = str(temporary)
            with chdir(home):
                yield home
        finally:
            tempfile.tempdir = place
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value
