"""A fresh environment with every wheel of this checkout, and servers that run in it."""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path

import httpx
import psutil
import pytest

START_SECONDS = 90
STOP_SECONDS = 20
READY = re.compile(r"^ready: \S+ at (http://\S+)$", re.MULTILINE)


@pytest.fixture(scope="session")
def environment(tmp_path_factory, fresh_environment, wheels):
    """An environment in which every distribution of this checkout is installed from its wheel."""
    made = fresh_environment.create(tmp_path_factory.mktemp("install") / "environment")
    made.install(list(wheels.values()))
    return made


@pytest.fixture
def neutral(tmp_path) -> Path:
    """A directory far from the checkout."""
    return tmp_path


class Server:
    """One `core serve` process on a free port.

    Attributes:
        ended: The exit status, once `end` has returned.
    """

    def __init__(self, environment, folder: Path, *words: str, **variables: str) -> None:
        folder.mkdir()
        self._out, self._err = folder / "stdout", folder / "stderr"
        self.ended: int | None = None
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                [environment.core, "serve", *words, "--port", "0", "--threads", "1"],
                cwd=folder,
                env={**environment.variables, **variables},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
            )
        self.url = self._wait_ready()

    def _wait_ready(self) -> str:
        deadline = time.monotonic() + START_SECONDS
        while (found := READY.search(self._out.read_text())) is None:
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.end()
                pytest.fail(f"the server did not start:\n{self._out.read_text()}\n{self._err.read_text()}")
            time.sleep(0.05)
        return found[1]

    def get(self, path: str) -> dict:
        return httpx.get(f"{self.url}{path}", timeout=60, trust_env=False).raise_for_status().json()

    def chat(self, content: str, **fields) -> dict:
        """Send one message and return the answer."""
        body = {"messages": [{"role": "user", "content": content}], "max_tokens": 400, **fields}
        return self.post("/v1/chat/completions", body)

    def post(self, path: str, body: dict) -> dict:
        """Send a body and return the answer."""
        return httpx.post(f"{self.url}{path}", json=body, timeout=60, trust_env=False).raise_for_status().json()

    def end(self) -> None:
        """End the process and what it started, by id."""
        if self.ended is not None:
            return
        family = []
        if self.process.poll() is None:
            me = psutil.Process(self.process.pid)
            family = [me, *me.children(recursive=True)]
            self.process.terminate()
        _, alive = psutil.wait_procs(family, timeout=STOP_SECONDS)
        for process in alive:
            process.kill()
        self.ended = self.process.wait(STOP_SECONDS)


@pytest.fixture
def serve(environment, tmp_path):
    """`serve(*words)` starts a server and waits until it is ready; all are ended after the test."""
    started: list[Server] = []

    def serve(*words: str | Path, **variables: str) -> Server:
        folder = tmp_path / f"server{len(started)}"
        started.append(Server(environment, folder, *map(str, words), **variables))
        return started[-1]

    yield serve
    for server in started:
        server.end()
