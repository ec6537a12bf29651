"""The engine of a server dies under its requests: they go on in the next one, no token is lost or comes twice."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import psutil
import pytest

HANG_SECONDS = 6
TINY = ("--threads", "1", "--dtype", "float32", "--num-blocks", "400", "--served-model-name", "tiny")
FLAGS = (*TINY, "--tool-parser", "hermes", "--engine-restarts", "1000", "--weight-transfer", "disk")
SAY = [{"role": "user", "content": "Say something."}]
GREEDY = {"temperature": 0.0, "ignore_eos": True}
SEEDED = {"temperature": 1.0, "seed": 11, "top_p": 0.95, "ignore_eos": True}
DIGITS = {"type": "object", "properties": {"d": {"type": "string", "pattern": "^[0-9]{250}$"}}, "required": ["d"]}
TOOL = {"type": "function", "function": {"name": "keep", "parameters": {**DIGITS, "additionalProperties": False}}}
PENALTIES = {"repetition_penalty": 1.1, "presence_penalty": 0.4, "frequency_penalty": 0.2, "min_tokens": 250}

REQUESTS = {
    "greedy": ("/v1/completions", {"prompt": "One", "max_tokens": 300, "logprobs": 2, **GREEDY}),
    "two seeded": ("/v1/completions", {"prompt": "Two", "max_tokens": 300, "n": 2, "logprobs": 1, **SEEDED}),
    "prompt scores": (
        "/v1/completions",
        {"prompt": "P" * 40, "max_tokens": 300, "echo": True, "logprobs": 1, **GREEDY},
    ),
    "penalties": ("/v1/completions", {"prompt": "Pen", "max_tokens": 300, **SEEDED, **PENALTIES, "ignore_eos": False}),
    "chat": (
        "/v1/chat/completions",
        {"messages": SAY, "max_tokens": 300, "logprobs": True, "top_logprobs": 2, **SEEDED},
    ),
    "tools": (
        "/v1/chat/completions",
        {"messages": SAY, "max_tokens": 400, "temperature": 1.0, "seed": 4, "tools": [TOOL], "tool_choice": "required"},
    ),
    "grammar": (
        "/v1/completions",
        {"prompt": "Digits:", "max_tokens": 400, "temperature": 1.0, "seed": 5}
        | {"structured_outputs": {"regex": "[0-9]{250}[a-c]"}},
    ),
    "responses": ("/v1/responses", {"input": "Say it.", "max_output_tokens": 300, "temperature": 0.0}),
    "anthropic": ("/v1/messages", {"messages": SAY, "max_tokens": 300, "temperature": 0.0}),
}
SEQUENCES = len(REQUESTS) + 1
BUSY = 3.0 * max(0.0, os.getloadavg()[0] / (os.cpu_count() or 1) - 1)
"""Seconds by which what else runs on this machine may delay what is noticed."""
_CHANGING = {"id", "created", "created_at", "completed_at", "item_id", "call_id", "response_id", "obfuscation"}


@pytest.fixture(scope="module")
def server(launch, tiny):
    return launch(str(tiny), *FLAGS).wait_ready()


def ask(server, name, **more):
    path, body = REQUESTS[name]
    with server.http() as http:
        answer = http.post(path, json={"model": "tiny", **body, **more})
    assert answer.status_code == 200, (name, answer.text)
    return answer


def plain(value):
    """Return an answer without what differs from one to the next; log-probabilities to four places."""
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items() if key not in _CHANGING}
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    return pytest.approx(value, abs=1e-3) if isinstance(value, float) else value


def joined(events):
    """Return what a stream said: the pieces of each kind, joined, and its end."""
    found: dict[str, str] = {}
    for line in events.splitlines():
        if not line.startswith("data: ") or line == "data: [DONE]":
            continue
        event = json.loads(line.removeprefix("data: "))
        assert "error" not in event or event["error"] is None, event
        for place in ("text", "delta"):
            for one in event.get("choices", [event]):
                piece = one.get(place)
                said = piece if isinstance(piece, str) else plain(piece or {})
                for key, text in {"": said}.items() if isinstance(said, str) else said.items():
                    name = f"{event.get('type', '')} {one.get('index', '')} {place} {key}"
                    found[name] = found.get(name, "") + (text if isinstance(text, str) else json.dumps(text))
        if event.get("usage"):
            found["usage"] = json.dumps(event["usage"], sort_keys=True)
    return found


def all_at_once(server, kill=None, names=REQUESTS, **more):
    """Return the answers; `kill` is called when all of them are being made."""
    before = server.gauges()["core_generation_tokens_total"]
    with ThreadPoolExecutor(len(names)) as pool:
        answers = {name: pool.submit(ask, server, name, **more) for name in names}
        if kill is not None:
            _until(lambda: server.gauges()["core_generation_tokens_total"] - before > 12 * len(names))
            kill()
        return {name: answer.result(120) for name, answer in answers.items()}


def _until(condition, seconds=90):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.005)


def _ready(server):
    return httpx.get(f"{server.url}/ready", trust_env=False).status_code == 200


@pytest.fixture(scope="module")
def undisturbed(server):
    return {name: answer.json() for name, answer in all_at_once(server).items()}


@pytest.mark.covers("ENG-06")
def test_answers_are_those_of_a_run_without_the_death(server, undisturbed):
    restarts = server.gauges()["core_engine_restarts_total"]
    answers = all_at_once(server, lambda: server.engine().send_signal(signal.SIGKILL))
    for name, answer in answers.items():
        assert plain(answer.json()) == plain(undisturbed[name]), name
    assert server.gauges()["core_engine_restarts_total"] == restarts + 1
    resumed = [int(found) for found in re.findall(r"; (\d+) sequences go on", server.stderr)]
    assert resumed[-1] == SEQUENCES  # every one was in the middle of it
    assert _ready(server)


@pytest.mark.covers("ENG-06")
def test_streams_are_those_of_a_run_without_the_death(server):
    names = REQUESTS.keys() - {"prompt scores"}  # the events of its prompt have another form

    def streams(kill=None):
        return {name: joined(answer.text) for name, answer in all_at_once(server, kill, names, stream=True).items()}

    whole = streams()
    assert all(sum(map(len, said.values())) > 200 for said in whole.values())
    assert streams(lambda: server.engine().send_signal(signal.SIGKILL)) == whole


@pytest.mark.covers("ENG-06")
def test_meanwhile_it_says_that_it_is_not_ready_and_when_to_come_back(server):
    with server.http() as http:
        assert http.post("/pause", json={"mode": "keep"}).status_code == 200
        server.engine().send_signal(signal.SIGKILL)
        _until(lambda: http.get("/ready").json().get("error", {}).get("code") == "engine")
        for answer in (http.get("/ready"), http.post("/v1/completions", json={"prompt": "Hi"})):
            assert answer.status_code == 503 and answer.json()["error"]["code"] == "engine"
            assert int(answer.headers["retry-after"]) >= 1
        called = http.post("/reset_prefix_cache")
        assert (called.status_code, called.json()["error"]["code"]) == (503, "CORE-E181")
        assert http.get("/health").status_code == 200
        _until(lambda: http.get("/ready").json()["error"]["code"] == "paused")  # what was paused stays so
        assert http.get("/is_paused").json() == {"is_paused": True}
        assert http.post("/resume").status_code == 200
        _until(lambda: _ready(server))


@pytest.mark.covers("ENG-06")
def test_updated_weights_are_said_to_be_lost_and_their_update_is_closed(server, tiny):
    with server.http() as http:
        update = {"update_info": {"path": str(tiny), "version": "second"}}
        assert http.post("/start_weight_update").status_code == 200
        assert http.post("/update_weights", json=update).json()["version"] == "second"
        server.engine().send_signal(signal.SIGKILL)
        _until(lambda: not _ready(server))
        _until(lambda: _ready(server))
        info = http.get("/weight_info").json()
        assert (info["version"], info["lost_version"], info["update_open"]) == ("initial", "second", False)
        assert "(version second) are lost with the engine" in server.stderr
        assert http.post("/update_weights", json=update).status_code == 409


@pytest.mark.covers("ENG-06")
def test_a_batch_file_goes_on(server, core, tmp_path):
    names = [f"r{index}" for index in range(6)]
    asked = [
        {
            "custom_id": name,
            "method": "POST",
            "url": "/v1/completions",
            "body": {"prompt": name, "max_tokens": 400, **kind},
        }
        for name, kind in zip(names, [GREEDY, SEEDED] * 3, strict=True)
    ]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(one) + "\n" for one in asked))

    def batch(name, kill=None):
        words = ("-i", tmp_path / "in.jsonl", "-o", tmp_path / name, "--url", server.url, "--max-retries", "0")
        before = server.gauges()["core_generation_tokens_total"]
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(core, "run-batch", *words, timeout=120)
            if kill is not None:
                _until(lambda: server.gauges()["core_generation_tokens_total"] - before > 100)
                kill()
            result = running.result(130)
        assert result.returncode == 0, result.stderr
        return [json.loads(line)["response"]["body"]["choices"] for line in (tmp_path / name).read_text().splitlines()]

    whole = batch("whole.jsonl")
    restarts = server.gauges()["core_engine_restarts_total"]
    assert batch("again.jsonl", lambda: server.engine().send_signal(signal.SIGKILL)) == whole
    assert server.gauges()["core_engine_restarts_total"] == restarts + 1


@pytest.mark.covers("ENG-06")
def test_a_request_that_was_there_at_three_deaths_is_ended_by_name(server):
    events: list[str] = []

    def read():
        body = {"prompt": "Suspect", "max_tokens": 900, "stream": True, **GREEDY}
        with server.http() as http, http.stream("POST", "/v1/completions", json=body) as response:
            for line in response.iter_lines():
                events.append(line)

    with server.http() as http, ThreadPoolExecutor(1) as pool:
        suspect = pool.submit(read)
        for _ in range(3):
            _until(lambda: events)
            assert http.post("/pause", json={"mode": "keep"}).status_code == 200  # or it would be done too soon
            restarts = server.gauges()["core_engine_restarts_total"]
            server.engine().send_signal(signal.SIGKILL)
            _until(lambda: server.gauges()["core_engine_restarts_total"] > restarts)  # noqa: B023
            _until(lambda: http.get("/ready").json()["error"]["code"] == "paused")
            assert http.post("/resume").status_code == 200
            events and events[-1] != "data: [DONE]" and _until(lambda: _ready(server))
        suspect.result(60)
        text = "\n".join(events)
        assert "CORE-E180" in text and "engine_request_error" in text
        assert re.search(r"request \S+ is ended: CORE-E180", server.stderr)
        assert http.post("/v1/completions", json={"prompt": "Next", "max_tokens": 4}).status_code == 200


@pytest.mark.covers("ENG-06")
def test_a_beam_search_goes_on(server):
    body = {"prompt": "Beams", "use_beam_search": True, "n": 3, "max_tokens": 150, "logprobs": 1, "ignore_eos": True}

    def search(http):
        answer = http.post("/v1/completions", json=body)
        assert answer.status_code == 200, answer.text
        return plain(answer.json())

    with server.http() as http, ThreadPoolExecutor(1) as pool:
        whole, restarts = search(http), server.gauges()["core_engine_restarts_total"]
        before = server.gauges()["core_scheduled_tokens_total"]
        answer = pool.submit(search, http)
        _until(lambda: server.gauges()["core_scheduled_tokens_total"] - before > 100)  # of 450
        server.engine().send_signal(signal.SIGKILL)
        assert answer.result(120) == whole
        assert server.gauges()["core_engine_restarts_total"] == restarts + 1


@pytest.mark.covers("ENG-06")
def test_pooling_requests_go_on_and_a_restart_takes_no_longer_than_a_start(launch):
    began = time.monotonic()
    server = launch("minilm", "--threads", "1", "--dtype", "float32").wait_ready()
    start = time.monotonic() - began
    texts = [f"{number} cats sat on {number} mats, " * 12 for number in range(30)]
    bodies = {
        "/v1/embeddings": {"input": texts},
        "/score": {"text_1": "A cat.", "text_2": texts},
        "/rerank": {"query": "A cat.", "documents": texts},
    }

    def ask_for(path):
        with server.http() as http:
            answer = http.post(path, json=bodies[path])
        assert answer.status_code == 200, answer.text
        return plain(answer.json())

    whole = {path: ask_for(path) for path in bodies}
    before = server.gauges()["core_scheduled_tokens_total"]
    with ThreadPoolExecutor(len(bodies)) as pool:
        answers = {path: pool.submit(ask_for, path) for path in bodies}
        _until(lambda: server.gauges()["core_scheduled_tokens_total"] > before)
        began = time.monotonic()
        server.engine().kill()
        assert not any(answer.done() for answer in answers.values())
        _until(lambda: server.gauges()["core_engine_restarts_total"] == 1 and _ready(server))
        restart = time.monotonic() - began
        assert {path: answer.result(60) for path, answer in answers.items()} == whole
    assert restart < 2 * start, (restart, start)
    server.end()


@pytest.mark.covers("ENG-06")
def test_an_engine_that_is_stopped_is_ended_and_its_stream_goes_on(launch, tiny):
    server = launch(str(tiny), *TINY, "--engine-hang-timeout", str(HANG_SECONDS)).wait_ready()
    name = "two seeded"
    whole = ask(server, name).json()
    before = server.gauges()["core_generation_tokens_total"]
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(ask, server, name)
        _until(lambda: server.gauges()["core_generation_tokens_total"] - before > 20)
        server.engine().send_signal(signal.SIGSTOP)
        _until(lambda: not _ready(server))
        assert server.gauges()["core_engine_restarts_total"] == 0  # it is red before it is ended
        assert plain(answer.result(120).json()) == plain(whole)
    assert server.gauges()["core_engine_restarts_total"] == 1
    assert "has not moved for" in server.stderr and "CORE-E182" in server.stderr
    server.end()


@pytest.fixture(scope="module")
def apart(launch, tiny):
    """A server whose worker has a process of its own."""
    return launch(str(tiny), *TINY, "--executor", "subprocess", "--engine-hang-timeout", str(HANG_SECONDS)).wait_ready()


def disturbed(server, disturb):
    """Check that an answer is what it is if nothing happens to the worker that makes it."""
    name = "two seeded"
    whole = ask(server, name).json()
    gauges = server.gauges()
    server_before, *others = server.family()
    assert len(others) == 2  # engine, worker
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(ask, server, name)
        before = gauges["core_generation_tokens_total"]
        _until(lambda: server.gauges()["core_generation_tokens_total"] - before > 20)
        disturb(others[-1])
        assert plain(answer.result(120).json()) == plain(whole)
    assert server.gauges()["core_engine_restarts_total"] == gauges["core_engine_restarts_total"] + 1
    server_now, *now = server.family()
    assert server_now == server_before and len(now) == 2
    assert not any(process.is_running() for process in others)


@pytest.mark.covers("ENG-06")
def test_a_worker_that_dies_takes_its_engine_along_and_answers_go_on(apart):
    disturbed(apart, psutil.Process.kill)
    assert "CORE-E130" in apart.stderr


@pytest.mark.covers("ENG-06")
def test_a_worker_that_is_stopped_is_noticed_and_its_engine_is_ended(apart):
    restarts = apart.gauges()["core_engine_restarts_total"]

    def stop(worker):
        began = time.monotonic()
        worker.suspend()
        _until(lambda: not _ready(apart))
        assert time.monotonic() - began < 5.0 + BUSY
        assert apart.gauges()["core_engine_restarts_total"] == restarts  # it is red before it is ended

    disturbed(apart, stop)  # and the worker has gone, although it could not see that its engine has
    assert "a worker of the engine" in apart.stderr and "CORE-E182" in apart.stderr


@pytest.mark.covers("ENG-06")
def test_a_worker_is_looked_after_when_nothing_is_to_be_done(apart):
    restarts, began = apart.gauges()["core_engine_restarts_total"], time.monotonic()
    worker = apart.family()[-1]
    worker.suspend()
    _until(lambda: not _ready(apart))
    worker.resume()
    _until(lambda: _ready(apart))
    if time.monotonic() - began < HANG_SECONDS:  # a busy machine may have let it hang for longer
        assert apart.gauges()["core_engine_restarts_total"] == restarts
    restarts, worker = apart.gauges()["core_engine_restarts_total"], apart.family()[-1]
    worker.kill()
    _until(lambda: apart.gauges()["core_engine_restarts_total"] == restarts + 1)
    _until(lambda: _ready(apart))


@pytest.mark.covers("ENG-06")
def test_more_deaths_than_are_allowed_end_the_server(launch, tiny):
    server = launch(str(tiny), *TINY, "--engine-restarts", "1").wait_ready()
    server.engine().send_signal(signal.SIGKILL)
    _until(lambda: not _ready(server))
    _until(lambda: _ready(server))
    server.engine().send_signal(signal.SIGKILL)
    assert server.process.wait(60) == 1
    assert server.stderr.strip().splitlines()[-1].startswith("core: CORE-E110 ")
    assert "Traceback" not in server.stderr


@pytest.mark.covers("ENG-06")
@pytest.mark.parametrize("begun", [False, True], ids=["at once", "in the middle of the start"])
def test_a_server_that_is_told_to_end_while_its_engine_starts(launch, tiny, tmp_path, begun):
    server = launch(str(tiny), *TINY, TMPDIR=str(tmp_path)).wait_ready()
    engine = server.engine()
    engine.send_signal(signal.SIGKILL)
    if begun:
        _until(lambda: [one.pid for one in psutil.Process(server.process.pid).children()] not in ([], [engine.pid]))
    family = server.family()
    server.process.terminate()
    assert server.process.wait(60) == 0
    _, alive = psutil.wait_procs(family, timeout=30)
    assert not alive and list(tmp_path.iterdir()) == []
    assert "Traceback" not in server.stderr


def _held(server):
    """Return what a server holds: descriptors, threads, child processes, listening sockets."""
    process = psutil.Process(server.process.pid)
    listening = [one for one in process.net_connections() if one.status == psutil.CONN_LISTEN]
    return process.num_fds(), process.num_threads(), len(process.children(recursive=True)), len(listening)


def _settled(server):
    """Return what an idle server holds, once that does not change any more."""
    found = [_held(server)]
    _until(lambda: found.append(_held(server)) or time.sleep(0.2) or (len(found) > 5 and len(set(found[-5:])) == 1))
    return found[-1]


@pytest.mark.covers("ENG-06")
@pytest.mark.parametrize("kills", [3, pytest.param(20, marks=pytest.mark.exhaustive)])
def test_kills_in_a_row_under_load_lose_nothing(launch, tiny, tmp_path, kills):
    server = launch(str(tiny), *FLAGS, TMPDIR=str(tmp_path)).wait_ready()
    prompts = [f"{index} and" for index in range(6)]
    done = threading.Event()

    def answer(http, prompt):
        return http.post("/v1/completions", json={"prompt": prompt, "max_tokens": 60, **SEEDED})

    def load(prompt, whole):
        served = 0
        with server.http() as http:
            while not done.is_set():
                found = answer(http, prompt)
                if found.status_code == 200:
                    assert found.json()["choices"] == whole
                    served += 1
                else:
                    assert found.json()["error"]["code"] in ("engine", "engine_request_error"), found.text
                    done.wait(0.05)
        return served

    def kill(times):
        for _ in range(times):
            restarts = server.gauges()["core_engine_restarts_total"]
            server.engine().send_signal(signal.SIGKILL)
            _until(lambda: server.gauges()["core_engine_restarts_total"] > restarts and _ready(server))  # noqa: B023

    with server.http() as http:
        wholes = [answer(http, prompt).json()["choices"] for prompt in prompts]
    kill(1)  # what is loaded for a restart stays
    held, folders, memory = _settled(server), len(list(tmp_path.iterdir())), _memory(server)
    with ThreadPoolExecutor(len(prompts)) as pool:
        loads = [pool.submit(load, prompt, whole) for prompt, whole in zip(prompts, wholes, strict=True)]
        kill(kills)
        done.set()
        assert all(load.result(60) for load in loads)
    assert _settled(server) == held
    assert len(list(tmp_path.iterdir())) == folders
    assert _memory(server) - memory < 48 * 2**20
    server.end()
    assert list(tmp_path.iterdir()) == []


def _memory(server):
    return psutil.Process(server.process.pid).memory_full_info().uss
