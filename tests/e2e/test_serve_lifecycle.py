"""How the server ends: asked to, forced to, or because its engine died. Nothing is left behind."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import socket
import threading
import time

import httpx
import psutil
import pytest

from core.config.resolved import Options
from core.engine import vitals
from core.options.engine import KVOptions, RuntimeOptions
from core.options.model import ModelOptions
from core.selection.resolver import resolve
from core.server import launch as server_launch

LONG = {"max_tokens": 900, "ignore_eos": True, "temperature": 0}


class Reader(threading.Thread):
    """Reads one stream to its end.

    Attributes:
        events: The `data:` lines so far; text of error events included.
        begun: Set with the first event.
    """

    def __init__(self, url: str, max_tokens: int) -> None:
        super().__init__(daemon=True)
        self._url, self._body = url, {**LONG, "max_tokens": max_tokens, "prompt": "A story:", "stream": True}
        self.events: list[str] = []
        self.begun = threading.Event()
        self.start()
        assert self.begun.wait(30)

    def run(self):
        # A connection that breaks off shows in the events: the last one is then not [DONE].
        with (
            contextlib.suppress(httpx.HTTPError),
            httpx.Client(base_url=self._url, timeout=60, trust_env=False) as http,
            http.stream("POST", "/v1/completions", json=self._body) as response,
        ):
            for line in response.iter_lines():
                if line.startswith("data: "):
                    self.events.append(line.removeprefix("data: "))
                    self.begun.set()

    def finish(self, seconds: float) -> list[str]:
        self.join(seconds)
        assert not self.is_alive(), "the stream neither went on nor ended"
        return self.events


def _until(condition) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.01)


def _assert_gone(processes: list[psutil.Process]) -> None:
    _, alive = psutil.wait_procs(processes, timeout=30)
    assert not [process for process in alive if process.status() != psutil.STATUS_ZOMBIE]


def _last_line(server) -> str:
    return server.stderr.strip().splitlines()[-1]


DEMO = ("smollm2", "--threads", "1", "--dtype", "bfloat16", "--max-model-len", "1024", "--num-blocks", "80")
DEMO += ("--engine-restarts", "0")


@pytest.fixture
def demo(launch):
    """A server of its own with the demo model: slow enough to be met in the middle of an answer."""
    server = launch(*DEMO).wait_ready()
    yield server
    server.end()


@pytest.mark.covers("API-01")
def test_a_port_that_is_taken_is_one_line_and_quick(core):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = core("serve", "smollm2", "--port", port)
    assert result.returncode != 0
    assert result.stderr.count("\n") == 1  # an engine that loads would say so
    assert result.stderr.startswith("core: CORE-S101 ")
    assert f"127.0.0.1:{port}" in result.stderr


@pytest.mark.covers("ENG-06")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["term", "int"])
def test_the_first_signal_lets_running_requests_finish(demo, number):
    family = demo.family()
    reader = Reader(demo.url, 40)
    demo.process.send_signal(number)
    with demo.http() as http:
        _until(lambda: http.get("/ready").status_code != 200)
        assert http.get("/ready").status_code == 503
        refused = http.post("/v1/completions", json={"prompt": "Hi"})
        assert http.get("/health").status_code == 200
    assert refused.status_code == 503
    assert refused.json()["error"]["type"] == "service_unavailable_error"
    assert refused.json()["error"]["code"] == "draining"
    assert int(refused.headers["retry-after"]) >= 1
    assert reader.is_alive()  # all of that happened in the middle of the answer
    events = reader.finish(30)
    assert events[-1] == "[DONE]"
    assert json.loads(events[-2])["choices"][0]["finish_reason"] == "length"
    assert demo.process.wait(30) == 0
    _assert_gone(family)
    assert "Traceback" not in demo.stderr
    assert "draining: 1 in flight" in demo.stderr


@pytest.mark.covers("ENG-06")
def test_what_a_pause_keeps_does_not_keep_the_server(demo):
    """The default time-out of a drain is half a minute; nobody will resume what a pause holds back."""
    family, late = demo.family(), []
    reader = Reader(demo.url, 900)
    with demo.http() as http:
        assert http.post("/pause", json={"mode": "keep"}).status_code == 200
        waiting = threading.Thread(target=lambda: late.append(http.post("/v1/completions", json={"prompt": "Hi"})))
        waiting.start()
        _until(lambda: http.get("/load").json()["server_load"] == 2)
        demo.process.send_signal(signal.SIGTERM)
        waiting.join(30)
    (refused,) = late
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "draining")
    events = reader.finish(30)
    assert events[-1] == "[DONE]" and json.loads(events[-2])["choices"][0]["finish_reason"] == "abort"
    assert demo.process.wait(10) == 0
    _assert_gone(family)
    assert "Traceback" not in demo.stderr


@pytest.mark.covers("ENG-06")
def test_the_second_signal_ends_it_at_once(demo):
    family = demo.family()
    reader = Reader(demo.url, 900)
    demo.process.send_signal(signal.SIGINT)
    _until(lambda: httpx.get(f"{demo.url}/ready", trust_env=False).status_code == 503)
    assert demo.process.poll() is None
    demo.process.send_signal(signal.SIGTERM)
    assert demo.process.wait(20) == 128 + signal.SIGTERM  # a drain takes up to 30 seconds
    events = reader.finish(30)
    assert events[-1] == "[DONE]"
    assert json.loads(events[-2])["error"]["code"] == "draining"
    _assert_gone(family)
    assert "Traceback" not in demo.stderr


@pytest.mark.covers("ENG-06")
def test_an_engine_that_is_killed_and_not_started_again_is_reported_to_everyone(demo):
    family, engine = demo.family(), demo.engine()
    reader = Reader(demo.url, 900)
    whole: list[httpx.Response] = []

    def wait_for_whole() -> None:
        with demo.http() as http:
            whole.append(http.post("/v1/completions", json={"prompt": "A poem:", **LONG}))

    waiting = threading.Thread(target=wait_for_whole, daemon=True)
    waiting.start()
    with demo.http() as http:
        _until(lambda: http.get("/load").json()["server_load"] == 2)
    engine.send_signal(signal.SIGKILL)
    events = reader.finish(30)
    assert events[-1] == "[DONE]"
    error = json.loads(events[-2])["error"]
    assert (error["type"], error["code"]) == ("service_unavailable_error", "CORE-E110")
    waiting.join(30)
    assert whole[0].status_code == 503
    assert whole[0].json()["error"]["code"] == "CORE-E110"
    assert demo.process.wait(30) != 0
    last = _last_line(demo)
    assert last.startswith("core: CORE-E110 ")
    assert "signal 9" in last
    assert "Traceback" not in demo.stderr
    _assert_gone(family)


@pytest.mark.covers("ENG-06")
def test_a_worker_that_is_killed_with_its_engine_not_started_again_is_reported_to_everyone(launch):
    server = launch(*DEMO, "--executor", "subprocess").wait_ready()
    family = server.family()
    assert len(family) == 3  # server, engine, worker
    reader = Reader(server.url, 900)
    family[-1].kill()
    events = reader.finish(30)
    assert events[-1] == "[DONE]"
    assert json.loads(events[-2])["error"]["code"] == "CORE-E130"
    assert server.process.wait(30) != 0
    assert _last_line(server).startswith("core: CORE-E130 ")
    _assert_gone(family)


def test_a_server_that_is_killed_takes_its_engine_along(demo):
    family = demo.family()
    assert len(family) == 2
    demo.process.kill()
    demo.process.wait(30)
    _assert_gone(family)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["term", "int"])
def test_a_signal_before_it_is_ready(launch, tiny, number):
    server = launch(str(tiny), "--threads", "1", "--num-blocks", "40")
    _until(lambda: server.process.poll() is not None or psutil.Process(server.process.pid).children())
    family = server.family()
    server.process.send_signal(number)
    assert server.process.wait(30) == 128 + number
    _assert_gone(family)
    assert "ready:" not in server.stdout
    assert "Traceback" not in server.stderr


def test_nothing_is_left_behind_and_the_address_is_free(launch, tiny, tmp_path, monkeypatch):
    """A restart on the same port, with a client's connection still open, needs no waiting."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    flags = ("--threads", "1", "--num-blocks", "40", "--max-model-len", "256")
    first = launch(str(tiny), *flags).wait_ready()
    port = first.url.rpartition(":")[2]
    with first.http() as http:
        assert http.get("/health").status_code == 200
        assert list(tmp_path.iterdir())  # the engine's sockets
        first.process.terminate()
        assert first.process.wait(30) == 0
        assert not list(tmp_path.iterdir())
        second = launch(str(tiny), *flags, "--port", port).wait_ready()
        assert second.url == first.url
        assert httpx.get(f"{second.url}/ready", trust_env=False).status_code == 200
    second.end()


@pytest.mark.covers("ENG-06")
def test_a_server_that_nobody_asks_stays_ready(tiny, monkeypatch):
    """The engine's signs of life are taken in before the first request; silence would count as its end."""
    monkeypatch.setattr(vitals, "SILENCE_SECONDS", 1.8)  # the engine reports once a second
    options = Options(
        model=ModelOptions(model=str(tiny)), kv=KVOptions(num_blocks=40), runtime=RuntimeOptions(threads=1)
    )

    async def scenario():
        started = await server_launch.start(resolve(options), options)
        try:
            for _ in range(15):
                await asyncio.sleep(0.2)
                assert started.llm.healthy
            assert started.llm.stats.blocks_total == 39
        finally:
            await started.llm.close()

    asyncio.run(asyncio.wait_for(scenario(), 60))
