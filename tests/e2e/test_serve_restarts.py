"""The engine of a server dies under its requests: they go on in the next one, and nobody loses or gets a token twice."""

from __future__ import annotations

import json
import re
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

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
