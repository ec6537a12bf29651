from __future__ import annotations

import asyncio
import json
import threading
from dataclasses import dataclass, field

import pytest


@dataclass
class Stub:
    """An OpenAI-compatible server of a few lines: `tokens` words per answer, one event each, `gap` seconds apart.

    Attributes:
        fail: Status to answer with, for the first `failures` requests.
        requests: (path, headers, body) of every request.
        most_open: The most requests that were open at once.
        thoughts: Words of reasoning before a chat answer.
        status_of: Path -> status of answers that are always refused.
    """

    tokens: int = 4
    gap: float = 0.002
    fail: int = 500
    failures: int = 0
    usage: bool = True
    port: int = 0
    break_after: int | None = None
    thoughts: int = 0
    status_of: dict = field(default_factory=dict)
    tokenizes: bool = True
    requests: list = field(default_factory=list)
    open: int = 0
    most_open: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def bodies(self) -> list[dict]:
        return [body for path, _, body in self.requests if path.startswith("/v1/") and body is not None]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                await self._request(line.decode(), reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _request(self, line: str, reader, writer) -> None:
        headers = {}
        while (header := (await reader.readline()).decode().strip()) != "":
            name, _, value = header.partition(":")
            headers[name.lower()] = value.strip()
        raw = await reader.readexactly(int(headers.get("content-length", 0)))
        body = json.loads(raw) if raw else None
        path = line.split()[1]
        self.requests.append((path, headers, body))
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            await self._answer(path, body, writer)
        finally:
            self.open -= 1

    async def _answer(self, path: str, body, writer) -> None:
        if path == "/v1/models":
            self._json(writer, 200, {"data": [{"id": "stub-model"}]})
        elif path == "/tokenize":
            text = body["prompt"].split() if self.tokenizes else None
            self._json(writer, 200 if self.tokenizes else 404, {"tokens": text})
        elif self.failures > 0:
            self.failures -= 1
            self._json(writer, self.fail, {"error": {"message": f"broken {self.failures}"}})
        elif path in self.status_of:
            self._json(writer, self.status_of[path], {"error": {"message": "never"}})
        elif not body.get("stream"):
            await asyncio.sleep(self.gap)
            usage = {"prompt_tokens": 1, "completion_tokens": self.tokens}
            self._json(writer, 200, {"echo": body, "usage": usage})
        else:
            await self._stream(path, body, writer)

    async def _stream(self, path: str, body, writer) -> None:
        chat = "chat" in path
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        if chat:
            self._event(writer, {"choices": [{"delta": {"role": "assistant", "content": ""}}]})
        for index in range(self.thoughts if chat else 0):
            self._event(writer, {"choices": [{"delta": {"reasoning_content": f"t{index} "}}]})
        for index in range(self.tokens):
            await asyncio.sleep(self.gap)
            if self.break_after == index:
                self._event(writer, {"error": {"message": "engine died"}})
                break
            word = f"w{index} "
            self._event(writer, {"choices": [{"delta": {"content": word}} if chat else {"text": word}]})
            await writer.drain()
        ending = {"finish_reason": "length"}
        self._event(writer, {"choices": [{"delta": {}, **ending} if chat else {"text": "", **ending}]})
        if self.usage:
            prompt = body.get("prompt") or body.get("messages")
            usage = {"prompt_tokens": len(prompt), "completion_tokens": self.tokens}
            self._event(writer, {"choices": [], "usage": usage})
        self._chunk(writer, b"data: [DONE]\n\n")
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    def _event(self, writer, data: dict) -> None:
        self._chunk(writer, b"data: " + json.dumps(data).encode() + b"\n\n")

    @staticmethod
    def _chunk(writer, data: bytes) -> None:
        writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    @staticmethod
    def _json(writer, status: int, data: dict) -> None:
        raw = json.dumps(data).encode()
        writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: {len(raw)}\r\n\r\n".encode() + raw)


@pytest.fixture
def stub():
    """A running stub server."""
    server = Stub()
    loop = asyncio.new_event_loop()

    async def start():
        listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
        server.port = listener.sockets[0].getsockname()[1]
        return listener

    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    listener = asyncio.run_coroutine_threadsafe(start(), loop).result(10)
    yield server
    loop.call_soon_threadsafe(listener.close)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.run_until_complete(asyncio.sleep(0.01))
    loop.close()


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch, tmp_path_factory):
    """No `CORE_*` variables, width or servers from outside; the log handler of a command is removed afterwards."""
    import logging
    import os

    from core.logs import CoreHandler

    for name in [name for name in os.environ if name.startswith("CORE_")]:
        monkeypatch.delenv(name)
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("runtime")))
    root = logging.getLogger()
    level = root.level
    yield
    root.handlers = [handler for handler in root.handlers if not isinstance(handler, CoreHandler)]
    root.setLevel(level)
    for name in ("core", "uvicorn"):
        logging.getLogger(name).setLevel(logging.NOTSET)


@pytest.fixture
def chat_session():
    """`chat_session(source, *flags)` is a chat on a source of answers, with the flags of `core chat`."""
    import argparse

    from core_plugin_chat.chat import Session, add_chat_flags

    from core.cli.host import Host

    def make(source, *flags: str) -> Session:
        parser = argparse.ArgumentParser()
        add_chat_flags(parser)
        return Session(Host(), source, parser.parse_args(flags))

    return make
