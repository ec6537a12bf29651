"""Where answers go: into a partial file as they come, into the output file in one piece at the end.

out.jsonl.part    what came since the output was written last; survives an interruption
out.jsonl         every answer, in the order of the requests; replaced as a whole
out.errors.jsonl  what failed in the last run that came to its end; only there if something did
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import orjson

from core.api import ConfigError, WholeFiles
from core_plugin_run_batch.requests import Request

_OK = 200


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a line stands: file, offset and length in bytes; and the `id` it carries."""

    file: IO[bytes]
    start: int
    length: int
    key: str


class Outbox:
    """The files of one batch, held against a second run at the same time.

    Args:
        files: How files are written.
        path: The output file.
        errors: The error file.
        overwrite: Forget what an earlier run has written.

    Raises:
        ConfigError: CORE-C181, a file cannot be used.
    """

    def __init__(self, files: WholeFiles, path: Path, errors: Path, *, overwrite: bool = False) -> None:
        self._files = files
        self.path, self.errors = path, errors
        self._partial = path.with_name(f"{path.name}.part")
        self._places: dict[str, _Place] = {}
        self._failed: list[bytes] = []
        self._before: IO[bytes] | None = None
        try:
            for target in (path, errors):
                target.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._partial.open("a+b")
        except OSError as error:
            raise self._unusable(error) from None
        try:
            self._lock()
            self._take_over(overwrite=overwrite)
        except BaseException as error:
            self.close()
            if isinstance(error, OSError):
                raise self._unusable(error) from None
            raise

    @property
    def answered(self) -> int:
        """How many answers there are, those of earlier runs included."""
        return len(self._places)

    def has(self, request: Request) -> bool:
        """Whether there is an answer to just this request; one to an earlier wording does not count."""
        place = self._places.get(request.custom_id)
        return place is not None and place.key == request.key

    def answer(self, record: dict[str, Any]) -> None:
        """Keep an answer, at once."""
        line = orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE)
        start = self._file.seek(0, 2)
        self._file.write(line)
        self._file.flush()
        self._places[record["custom_id"]] = _Place(self._file, start, len(line), record["id"])

    def fail(self, record: dict[str, Any]) -> None:
        """Keep a failure; it is tried again by the next run."""
        self._failed.append(orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE))

    def finish(self, order: Iterable[str]) -> int:
        """Write output and error file; return the number of failures.

        Answers to requests that are not in `order` stay in front: a file of another batch is added to, not lost.
        """
        try:
            wanted = list(order)
            others = self._places.keys() - set(wanted)
            with self._files.replaced(self.path) as output:
                for custom_id in [*(one for one in self._places if one in others), *wanted]:
                    if custom_id in self._places:
                        output.write(_line(self._places[custom_id]))
            self._write_errors()
            self._partial.unlink()
        except OSError as error:
            raise ConfigError("CORE-C181", f"{self.path} cannot be written: {error.strerror}.") from None
        return len(self._failed)

    def _write_errors(self) -> None:
        if self._failed:
            with self._files.replaced(self.errors) as output:
                output.writelines(self._failed)
        else:
            self.errors.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the files; a partial file without an answer goes."""
        if self._before is not None:
            self._before.close()
        if not self._file.closed:
            if self._file.seek(0, 2) == 0:
                self._partial.unlink(missing_ok=True)
            self._file.close()

    def _unusable(self, error: OSError) -> ConfigError:
        return ConfigError("CORE-C181", f"--output-file {self.path} cannot be used: {error.strerror}.")

    def _take_over(self, *, overwrite: bool) -> None:
        """Find what earlier runs have written."""
        if overwrite:
            self._file.truncate(0)
        elif self.path.exists():
            self._before = self.path.open("rb")
            self._index(self._before)
        # A line in whose middle an earlier run was killed goes.
        self._file.truncate(self._index(self._file))

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.close()
            text = f"another run-batch writes to {self.path}."
            raise ConfigError("CORE-C181", text, hint="Wait for it, or give another --output-file.") from None

    def _index(self, file: IO[bytes]) -> int:
        """Find the answers of a file; return where the last whole line ends.

        Raises:
            ConfigError: CORE-C181, a whole line is no answer: the file is something else.
        """
        end = 0
        for start, line in _whole_lines(file):
            record = _record(line)
            if record is None:
                text = f"{file.name} is there and is no output of run-batch (byte {start})."
                raise ConfigError("CORE-C181", text, hint="Give another --output-file, or --overwrite.")
            self._places[record["custom_id"]] = _Place(file, start, len(line), record["id"])
            end = start + len(line)
        return end


def _whole_lines(file: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    start = file.seek(0)
    for line in file:
        if line.endswith(b"\n"):
            yield start, line
        start += len(line)


def _record(line: bytes) -> dict[str, Any] | None:
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    good = isinstance(record, dict) and isinstance(record.get("custom_id"), str) and isinstance(record.get("id"), str)
    return record if good and (record.get("response") or {}).get("status_code") == _OK else None


def _line(place: _Place) -> bytes:
    place.file.seek(place.start)
    return place.file.read(place.length)
