"""Build the pages: the sources beside this file become the files of `src/core_plugin_webui/static`.

    python plugins/routes/webui/web/build.py             # nothing happens if they are up to date
    python plugins/routes/webui/web/build.py --optional  # where there is no npm, say so and go on

Needs Node.js and npm, and fetches the packages that package-lock.json names, once. The wheel has the files in it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

WEB = Path(__file__).resolve().parent
STATIC = WEB.parent / "src" / "core_plugin_webui" / "static"
INDEX = "build.json"
_LOCKED = ("package.json", "package-lock.json")
_QUIET = ("--no-audit", "--no-fund", "--loglevel=error")
_INSTALL = ("ci", "--include=dev", "--ignore-scripts", "--fetch-retries=1", *_QUIET)


class BuildError(Exception):
    """The pages cannot be built; the message is for the user."""


def sources() -> Iterator[Path]:
    """Yield every file that decides what is built."""
    yield from (WEB / name for name in (*_LOCKED, "build.mjs"))
    yield from sorted(path for path in (WEB / "src").rglob("*") if path.is_file())


def digest(files: Iterator[Path] | Sequence[Path]) -> str:
    """Return a hash of files: of their names and contents."""
    found = hashlib.sha256()
    for path in files:
        content = path.read_bytes()
        found.update(f"{path.relative_to(WEB)}\0{len(content)}\0".encode())
        found.update(content)
    return found.hexdigest()


def is_current() -> bool:
    """Whether what was built is of these sources, and all there."""
    try:
        index = json.loads((STATIC / INDEX).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    there = all((STATIC / name).is_file() for name in index["files"])
    return there and index["sources"] == digest(sources())


def build() -> bool:
    """Build what is not up to date; return whether there was anything to do.

    Raises:
        BuildError: There is no npm, the packages cannot be fetched, or the bundler failed.
    """
    if is_current():
        return False
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        raise BuildError("the web pages are not built, because npm is not installed; install Node.js 20 or newer")
    fetch(npm)
    with tempfile.TemporaryDirectory(prefix=".static-", dir=STATIC.parent) as folder:
        fresh = Path(folder) / "static"
        fresh.mkdir()
        _run([node, "build.mjs", str(fresh)])
        files = sorted(path.name for path in fresh.iterdir())
        index = {"sources": digest(sources()), "files": files}
        (fresh / INDEX).write_text(json.dumps(index, indent=1) + "\n", encoding="utf-8")
        shutil.rmtree(STATIC, ignore_errors=True)
        fresh.rename(STATIC)
    return True


def fetch(npm: str) -> None:
    """Install the packages of package-lock.json, unless they are there. Raises `BuildError`."""
    stamp = WEB / "node_modules" / ".core-lock"
    locked = digest([WEB / name for name in _LOCKED])
    if not stamp.is_file() or stamp.read_text(encoding="utf-8") != locked:
        _run([npm, *_INSTALL])
        stamp.write_text(locked, encoding="utf-8")


def _run(words: Sequence[str]) -> None:
    done = subprocess.run(words, cwd=WEB, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        command, said = " ".join(words[:2]), (done.stderr or done.stdout).strip()[-2000:]
        raise BuildError(f"the web pages cannot be built: `{command}` ended with status {done.returncode}:\n{said}")


def main(words: Sequence[str] | None = None) -> int:
    """Build and return the exit status."""
    parser = argparse.ArgumentParser(description="Build the pages of core-plugin-webui.")
    parser.add_argument("--optional", action="store_true", help="end with status 0 where they cannot be built")
    optional = parser.parse_args(words).optional
    try:
        if build():
            print(f"built the web pages: {STATIC}")
    except BuildError as error:
        print(f"note: {error}", *(["(the server works without them)"] if optional else []), file=sys.stderr)
        return 0 if optional else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
