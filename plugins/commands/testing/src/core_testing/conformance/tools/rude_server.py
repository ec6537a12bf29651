"""An HTTP server that answers everything in one wrong way, and notes what it was asked."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType
from typing import Any

_Answer = tuple[int, str, bytes]

ANSWERS: Mapping[str, _Answer] = MappingProxyType(
    {
        "nothing": (200, "application/json", b""),
        "status 500": (500, "text/plain", b"broken"),
        "status 401": (401, "application/json", b'{"error": "unauthorized"}'),
        "a page": (200, "text/html", b"<html><body>Hello</body></html>"),
        "another object": (200, "application/json", b'{"tools": "none", "result": 5}'),
        "half an object": (200, "application/json", b'{"jsonrpc": "2.0", "id": 1, "resu'),
    }
)
"""Wrong answers by name: the status, content type and body of each."""


class RudeServer:
    """Serves while it is entered.

    Args:
        answer: A name of `ANSWERS`, or `status N` for a redirect to `target`.

    Attributes:
        requests: Lines of what it was asked.
        url: Without a path.
    """

    def __init__(self, answer: str, target: str = "") -> None:
        self.requests: list[str] = []
        status, kind, body = ANSWERS.get(answer) or (int(answer.split()[1]), "text/plain", b"")
        requests = self.requests

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                requests.append(self.requestline)
                self.rfile.read(int(self.headers.get("content-length") or 0))
                self.send_response(status)
                if target:
                    self.send_header("Location", f"{target}{self.path}")
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def __getattr__(self, name: str) -> Any:
                """Find `do_POST` and the like."""
                if name.startswith("do_"):
                    return self.answer
                raise AttributeError(name)

            def log_message(self, format: str, *args: Any) -> None:
                """Keep quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> RudeServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
