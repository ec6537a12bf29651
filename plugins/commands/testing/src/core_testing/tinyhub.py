"""A model hub on this machine, for tests: as much of the Hugging Face hub's protocol as a download needs.

hub = TinyHub({"acme/tiny": TinyRepo({"config.json": b"{}"})})
with hub:
    ...  # HF_ENDPOINT=hub.url
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import unquote, urlsplit

_API = re.compile(r"/api/models/(?P<repo>[\w.-]+(?:/[\w.-]+)?)(?:/revision/(?P<revision>[^/]+))?")
_FILE = re.compile(r"/(?P<repo>[\w.-]+(?:/[\w.-]+)?)/resolve/(?P<revision>[^/]+)/(?P<name>.+)")


@dataclass
class TinyRepo:
    """A repository.

    Attributes:
        files: Name -> content.
        gated: Whether files are given only to holders of a token.
        token: The only token that may see a private repository.
        refs: Branches and tags beside `main`.
    """

    files: dict[str, bytes]
    gated: bool = False
    token: str | None = None
    refs: tuple[str, ...] = ()

    @classmethod
    def of(cls, folder: Path) -> TinyRepo:
        """Return a repository with the files of a folder."""
        found = (path for path in sorted(folder.rglob("*")) if path.is_file())
        return cls({path.relative_to(folder).as_posix(): path.read_bytes() for path in found})

    @property
    def commit(self) -> str:
        """Hash of everything, in the form of a commit's."""
        digest = hashlib.sha1(usedforsecurity=False)
        for name in sorted(self.files):
            digest.update(name.encode() + b"\0" + self.files[name])
        return digest.hexdigest()


class Seen(NamedTuple):
    """A request that the hub has had: `asked` is its `Range`."""

    method: str
    path: str
    token: str | None
    asked: str | None


@dataclass
class TinyHub:
    """The hub; a context manager that serves it on 127.0.0.1.

    Attributes:
        repos: Id -> repository.
        refused: Tokens that are not valid.
        break_after: File -> bytes after which its next transfer is cut off, once.
        gate: Cleared, it holds every transfer of a file's content until it is set.
        seen: Every request.
    """

    repos: dict[str, TinyRepo]
    refused: tuple[str, ...] = ()
    break_after: dict[str, int] = field(default_factory=dict)
    gate: threading.Event = field(default_factory=threading.Event)
    seen: list[Seen] = field(default_factory=list)
    url: str = ""

    def fetched(self, name: str) -> list[Seen]:
        """Return the transfers of one file's content."""
        return [one for one in self.seen if one.method == "GET" and one.path.endswith(f"/{name}")]

    def __enter__(self) -> Self:
        self.gate.set()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, self))
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.gate.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    """Answers one connection, for `hub`."""

    protocol_version = "HTTP/1.1"

    def __init__(self, hub: TinyHub, *connection: Any) -> None:
        self._hub = hub  # before the base class, whose constructor answers
        super().__init__(*connection)

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def log_message(self, *arguments: object) -> None: ...

    def _answer(self) -> None:
        path = unquote(urlsplit(self.path).path)
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ") or None
        self._hub.seen.append(Seen(self.command, path, token, self.headers.get("Range")))
        if token in self._hub.refused:
            self._refuse(401, "", "Invalid credentials in Authorization header")
        elif found := _API.fullmatch(path):
            self._describe(self._hub.repos.get(found["repo"]), found["repo"], found["revision"] or "main", token)
        elif found := _FILE.fullmatch(path):
            self._give(self._hub.repos.get(found["repo"]), found["revision"], found["name"], token)
        else:
            self._refuse(404, "EntryNotFound", "Not here")

    def _describe(self, repo: TinyRepo | None, name: str, revision: str, token: str | None) -> None:
        if self._may(repo, revision, token) and repo is not None:
            files = [{"rfilename": one, "size": len(content)} for one, content in repo.files.items()]
            facts = {"id": name, "modelId": name, "sha": repo.commit, "siblings": files, "tags": []}
            self._send(200, json.dumps(facts).encode(), {"Content-Type": "application/json"})

    def _give(self, repo: TinyRepo | None, revision: str, name: str, token: str | None) -> None:
        if not self._may(repo, revision, token) or repo is None:
            return
        if repo.gated and token is None:
            self._refuse(401, "GatedRepo", "Access to this model is restricted")
        elif name not in repo.files:
            self._refuse(404, "EntryNotFound", "Entry not found")
        else:
            self._transfer(repo, name)

    def _transfer(self, repo: TinyRepo, name: str) -> None:
        content = repo.files[name]
        facts = {"X-Repo-Commit": repo.commit, "ETag": f'"{hashlib.sha256(content).hexdigest()}"'}
        part = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range") or "")
        if part:
            start = int(part[1])
            facts["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
            content = content[start:]
        most = None
        if self.command == "GET":
            self._hub.gate.wait(30)
            most = self._hub.break_after.pop(name, None)
        self._send(206 if part else 200, content, facts, most)

    def _may(self, repo: TinyRepo | None, revision: str, token: str | None) -> bool:
        if repo is None or (repo.token is not None and token != repo.token):
            # The hub does not say whether a repository exists that one may not see.
            self._refuse(401 if token is None else 404, "RepoNotFound", "Repository not found")
            return False
        if revision not in ("main", repo.commit, *repo.refs):
            self._refuse(404, "RevisionNotFound", "Invalid rev id")
            return False
        return True

    def _refuse(self, status: int, code: str, text: str) -> None:
        self._send(status, b"", {"X-Error-Code": code, "X-Error-Message": text} if code else {"X-Error-Message": text})

    def _send(self, status: int, body: bytes, headers: dict[str, str], most: int | None = None) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body[:most])
        if most is not None:
            self.close_connection = True
