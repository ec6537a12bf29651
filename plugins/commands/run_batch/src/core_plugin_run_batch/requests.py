"""The lines of a batch: requests, and lines that are none."""

from __future__ import annotations

import hashlib
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from core.api import ConfigError

_PATH = re.compile(r"/[A-Za-z0-9._~/-]{1,200}")
_ANSWERING = re.compile(r"/v[12]/.+|/(?:score|rerank|pooling|classify|tokenize|detokenize|apply-template)")
"""Routes that answer. The others run the server: a batch that pauses it would wait for itself."""
_LONGEST_ID = 512


@dataclass(frozen=True, slots=True)
class Request:
    """One request.

    Attributes:
        custom_id: The user's name for it, unique in the file.
        url: Path on the server.
        body: JSON.
        key: Stays the same as long as path and body mean the same; an answer carries it as its `id`.
    """

    custom_id: str
    url: str
    body: bytes
    key: str


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that cannot be sent.

    Attributes:
        number: From 1.
        custom_id: If it has one.
    """

    number: int
    custom_id: str | None
    reason: str

    def __str__(self) -> str:
        return f"line {self.number}: {self.reason}"

    def record(self) -> dict[str, Any]:
        """Return the line for the error file."""
        error = {"code": "invalid_line", "message": str(self)}
        return {
            "id": f"batch_line_{self.number}",
            "custom_id": self.custom_id,
            "response": None,
            "error": error,
        }


class _LineError(Exception):
    """Why a line is bad, and its `custom_id` if it has one."""

    def __init__(self, reason: str, custom_id: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.custom_id = custom_id


def read_requests(source: str) -> tuple[list[Request], list[BadLine]]:
    """Read a whole batch; empty lines are skipped.

    Args:
        source: A file, or `-` for standard input.

    Raises:
        ConfigError: CORE-C180, it cannot be read.
    """
    try:
        raw = sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()
    except OSError as error:
        raise ConfigError("CORE-C180", f"--input-file {source} cannot be read: {error.strerror}.") from None
    requests: dict[str, Request] = {}
    bad: list[BadLine] = []
    for number, line in enumerate(raw.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            request = _request(line)
            if request.custom_id in requests:
                raise _LineError("its custom_id is that of an earlier line", request.custom_id)
            requests[request.custom_id] = request
        except _LineError as error:
            bad.append(BadLine(number, error.custom_id, error.reason))
    return list(requests.values()), bad


def _request(line: bytes) -> Request:
    try:
        fields = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise _LineError(f"not valid JSON: {error}") from None
    if not isinstance(fields, dict):
        raise _LineError("not a JSON object")
    custom_id = fields.get("custom_id")
    if not isinstance(custom_id, str) or not 0 < len(custom_id) <= _LONGEST_ID:
        raise _LineError(f"custom_id has to be a text of 1 to {_LONGEST_ID} characters")
    reason = _reason(fields)
    if reason:
        raise _LineError(reason, custom_id)
    url, body = fields["url"], orjson.dumps(fields["body"], option=orjson.OPT_SORT_KEYS)
    digest = hashlib.sha256(url.encode() + b"\0" + body).hexdigest()
    return Request(custom_id, url, body, f"batch_req_{digest[:32]}")


def _reason(fields: dict[str, Any]) -> str | None:
    """Return why the fields other than `custom_id` are no request."""
    url, body = fields.get("url"), fields.get("body")
    if fields.get("method", "POST") != "POST":
        return "method has to be POST"
    if not isinstance(url, str) or not _PATH.fullmatch(url):
        return "url has to be a path such as /v1/chat/completions"
    if not _ANSWERING.fullmatch(url) or ".." in url.split("/"):
        return "url has to be a route that answers requests, such as /v1/chat/completions"
    if not isinstance(body, dict):
        return "body has to be a JSON object"
    if body.get("stream"):
        return "a batch has no streams: leave stream out of the body"
    return None
