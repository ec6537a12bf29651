"""Draining, second signals, the engine's death: in memory for the details, as a process for the exit status."""

import asyncio
import json
import signal
import subprocess
import sys
import textwrap
import threading
import time

import httpx
import pytest

from core.server.supervisor import Supervisor

STREAM = {"prompt": "a", "stream": True}


class Exits:
    should_exit = False
    force_exit = False


def in_thread(work):
    result = []
    thread = threading.Thread(target=lambda: result.append(work()))
    thread.start()
    return thread, result


def post(server, body):
    return httpx.post(f"{server.url}/v1/completions", json=body, timeout=30)


def last_error(response):
    parts = [part for part in response.text.split("\n\n") if part]
    assert parts[-1] == "data: [DONE]"
    assert parts[-2].startswith("event: error\n")
    return json.loads(parts[-2].partition("data: ")[2])["error"]


def test_draining_lets_running_requests_finish(live, fake, until):
    llm = fake(hold_at=1)
    with live(llm) as server:
        thread, answers = in_thread(lambda: post(server, STREAM))
        until(lambda: llm.running == 1)
        server.state.lifecycle.draining = True
        refused = post(server, {"prompt": "b"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "draining")
        assert refused.headers["retry-after"]
        assert httpx.get(f"{server.url}/ready").status_code == 503
        assert httpx.get(f"{server.url}/health").status_code == 200
        llm.held.set()
        thread.join(30)
        assert answers[0].text.endswith("data: [DONE]\n\n")
        assert "error" not in answers[0].text


@pytest.mark.parametrize("hold_at", [0, 1])
@pytest.mark.parametrize("stream", [False, True])
def test_what_does_not_finish_in_time_is_told(live, fake, until, hold_at, stream):
    llm = fake(hold_at=hold_at)
    with live(llm) as server:
        thread, answers = in_thread(lambda: post(server, {"prompt": "a", "stream": stream}))
        until(lambda: llm.running == 1 and (hold_at == 0 or not stream or server.state.pending == 0))
        server.loop.call_soon_threadsafe(server.state.lifecycle.stop)
        thread.join(30)
        answer = answers[0]
        if stream and hold_at:
            assert last_error(answer)["code"] == "draining"
        else:
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "draining")
        until(lambda: llm.running == 0)


@pytest.mark.parametrize("stream", [False, True])
def test_the_engine_dies_under_open_requests(live, fake, until, engine_error, stream):
    llm = fake(hold_at=2)
    with live(llm) as server:
        thread, answers = in_thread(lambda: post(server, {"prompt": "a", "stream": stream}))
        until(lambda: llm.running == 1 and server.state.pending == 0)
        llm.healthy, llm.failure = False, engine_error
        thread.join(30)
        if stream:
            assert last_error(answers[0])["code"] == "CORE-E110"
        else:
            assert answers[0].status_code == 503
        assert httpx.get(f"{server.url}/ready").status_code == 503


def supervised(state, *, before, seconds=30.0):
    """Run a supervisor until its server should exit; `before` gets it once it watches."""
    exits = Exits()
    supervisor = Supervisor(exits, state)

    async def go():
        watch = asyncio.create_task(supervisor.watch())
        before(supervisor)
        deadline = time.monotonic() + seconds
        while not exits.should_exit and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        watch.cancel()

    asyncio.run(go())
    return supervisor, exits


def test_an_idle_server_drains_at_once(api):
    state = api.app.state.core
    supervisor, exits = supervised(state, before=lambda s: s.signalled(signal.SIGTERM))
    assert (exits.should_exit, exits.force_exit, supervisor.error, supervisor.forced) == (True, False, None, None)


def test_what_an_operator_drains_over_http_ends_as_after_a_signal(api):
    lifecycle = api.app.state.core.lifecycle
    supervisor, exits = supervised(api.app.state.core, before=lambda supervisor: lifecycle.drain())
    assert (exits.should_exit, exits.force_exit, supervisor.error, supervisor.forced) == (True, False, None, None)


def test_a_paused_server_drains_at_once(api, llm):
    """What a pause holds back would wait for a resume until the time is over."""
    state, held = api.app.state.core, []

    async def dismiss_held():
        held.pop().set()

    def pause_and_drain(supervisor):
        released = asyncio.Event()
        held.append(released)
        task = asyncio.ensure_future(released.wait())
        state.lifecycle.work.add(task)
        task.add_done_callback(state.lifecycle.work.discard)
        supervisor.signalled(signal.SIGTERM)

    llm.paused, llm.dismiss_held = True, dismiss_held
    supervisor, exits = supervised(state, before=pause_and_drain)
    assert (exits.should_exit, supervisor.error, state.lifecycle.stopped) == (True, None, False)


def test_a_second_signal_forces(api):
    def twice(supervisor):
        supervisor.signalled(signal.SIGTERM)
        supervisor.signalled(signal.SIGINT)

    supervisor, exits = supervised(api.app.state.core, before=twice)
    assert (exits.force_exit, supervisor.forced) == (True, signal.SIGINT)


def test_a_dead_engine_ends_the_server(api, llm, engine_error):
    llm.healthy, llm.failure = False, engine_error
    supervisor, exits = supervised(api.app.state.core, before=lambda s: None)
    assert exits.should_exit
    assert supervisor.error is engine_error


def test_an_engine_that_is_being_started_again(api, llm, caplog):
    llm.healthy, llm.retry_after, llm.restarts = False, 7, 2
    _, exits = supervised(api.app.state.core, before=lambda s: None, seconds=0.7)
    assert not exits.should_exit and "does not answer" not in caplog.text
    for refused in (api.get("/ready"), api.post("/v1/completions", {"prompt": "a"})):
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "engine")
        assert refused.headers["retry-after"] == "7" and "started again" in refused.json()["error"]["message"]
    assert api.get("/health").status_code == 200
    assert 'core_engine_restarts_total{model_name="acme/tiny"} 2.0\n' in api.get("/metrics").text
    assert 'core_engine_healthy{model_name="acme/tiny"} 0.0\n' in api.get("/metrics").text
    llm.healthy, llm.retry_after = True, None
    assert api.get("/ready").status_code == 200


def test_a_silent_engine_is_waited_for(api, llm, caplog):
    llm.healthy = False
    _, exits = supervised(api.app.state.core, before=lambda s: None, seconds=0.7)
    assert not exits.should_exit
    assert caplog.text.count("does not answer") == 1


PROGRAM = """
import importlib.util, sys, threading, time
spec = importlib.util.spec_from_file_location("fakes", sys.argv[1])
fakes = importlib.util.module_from_spec(spec)
sys.modules["fakes"] = fakes
spec.loader.exec_module(fakes)
from core.api.errors import CoreError, EngineError
from core.server.launch import ReadyFrontEnd, serve
from core.server.listen import bind

mode = sys.argv[2]
options = fakes.make_options(drain_timeout=0.5 if mode == "stuck" else 20)
llm = fakes.FakeLLM(hold_at=1)

def told():
    if not sys.stdin.readline():
        return
    if mode == "die":
        llm.failure, llm.healthy = EngineError("CORE-E110", "the engine process was ended by signal 9."), False
    else:
        llm.held.set()

threading.Thread(target=told, daemon=True).start()

async def start():
    if mode == "slow":
        import asyncio
        print("starting", flush=True)
        await asyncio.sleep(30)
    return ReadyFrontEnd(llm, fakes.make_app(llm, options), [("engine", 0.1)])

listener = bind(options.server)
try:
    status = serve(options, listener, start)
except CoreError as error:
    print(f"core: {error}", file=sys.stderr)
    status = 1
sys.exit(status)
"""


class Process:
    def __init__(self, mode):
        conftest = __file__.replace("test_server_lifecycle.py", "conftest.py")
        self.popen = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(PROGRAM), conftest, mode],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.lines = []
        for line in self.popen.stdout:
            self.lines.append(line.strip())
            if line.startswith(("curl", "starting")):
                break
        ready = next((line for line in self.lines if line.startswith("ready: ")), "")
        self.url = ready.rpartition(" at ")[2]

    def stream(self):
        return in_thread(lambda: httpx.post(f"{self.url}/v1/completions", json=STREAM, timeout=20))

    def wait_running(self):
        self._wait(
            lambda: 'core_generation_tokens_total{model_name="acme/tiny"} 1.0' in httpx.get(f"{self.url}/metrics").text
        )

    def wait_draining(self):
        self._wait(lambda: httpx.get(f"{self.url}/ready").status_code == 503)

    def _wait(self, condition):
        deadline = time.monotonic() + 30
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def tell(self):
        """Let what the mode is about happen."""
        self.popen.stdin.write("now\n")
        self.popen.stdin.flush()

    def end(self):
        out, err = self.popen.communicate(timeout=60)
        return self.popen.returncode, out, err


@pytest.fixture
def process():
    started = []

    def start(mode):
        started.append(Process(mode))
        return started[-1]

    yield start
    for one in started:
        if one.popen.poll() is None:
            one.popen.kill()
            one.popen.communicate()


def test_sigterm_drains_and_exits_with_zero(process):
    server = process("drain")
    assert any(line.startswith("started in ") for line in server.lines)
    thread, answers = server.stream()
    server.wait_running()
    server.popen.send_signal(signal.SIGTERM)
    server.wait_draining()
    assert httpx.post(f"{server.url}/v1/completions", json={"prompt": "b"}).status_code == 503
    server.tell()
    status, _, _ = server.end()
    thread.join(30)
    assert status == 0
    assert answers[0].text.endswith("data: [DONE]\n\n")
    assert "error" not in answers[0].text


def test_what_outlives_the_drain_gets_an_error(process):
    server = process("stuck")
    thread, answers = server.stream()
    server.wait_running()
    server.popen.send_signal(signal.SIGTERM)
    assert server.end()[0] == 0
    thread.join(30)
    assert last_error(answers[0])["code"] == "draining"


def test_a_second_signal_exits_at_once(process):
    server = process("hold")
    thread, _ = server.stream()
    server.wait_running()
    server.popen.send_signal(signal.SIGINT)
    server.wait_draining()
    began = time.monotonic()
    server.popen.send_signal(signal.SIGINT)
    status, _, _ = server.end()
    assert status == 128 + signal.SIGINT
    assert time.monotonic() - began < 15  # a drain would take 20
    thread.join(30)


def test_a_dead_engine_is_the_last_line_and_status_one(process):
    server = process("die")
    thread, answers = server.stream()
    server.wait_running()
    server.tell()
    status, _, err = server.end()
    thread.join(30)
    assert status == 1
    assert err.strip().splitlines()[-1] == "core: CORE-E110 the engine process was ended by signal 9."
    assert last_error(answers[0])["code"] == "CORE-E110"


def test_a_signal_during_the_start_ends_it(process):
    server = process("slow")
    server.popen.send_signal(signal.SIGTERM)
    status, _, err = server.end()
    assert status == 128 + signal.SIGTERM
    assert "Traceback" not in err
