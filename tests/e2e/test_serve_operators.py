"""What operators see: every line of a server's output is a record, and its figures can be scraped as the pages say."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import time
from datetime import datetime
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from .conftest import PATIENCE, POLL, TINY_FLAGS

KEY = "sk-operators"
MESSAGES = [{"role": "user", "content": "Hello"}]
REQUIRED = {"time", "level", "process", "pid", "logger", "message"}
ANSWERED = {"method", "route", "status", "ms", "request_id", "model", "prompt_tokens", "completion_tokens", "error"}
FENCE = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FLAGS = (
    "--log-format",
    "json",
    "--log-requests",
    "--metrics-compat",
    "vllm",
    "--allowed-origins",
    "https://good.example",
)


@pytest.fixture(scope="module")
def server(launch, tiny):
    return launch(str(tiny), *TINY_FLAGS, *FLAGS, CORE_API_KEY=KEY).wait_ready()


def records(text):
    found = [json.loads(line) for line in text.splitlines()]
    for one in found:
        assert one.keys() >= REQUIRED, one
        assert datetime.fromisoformat(one["time"]).utcoffset() is not None
    return found


def wait(condition):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(POLL)


@pytest.mark.covers("OBS-04")
def test_the_page_is_scraped_as_the_documentation_says(server):
    probes, scrape = map(yaml.safe_load, FENCE.findall((Path(__file__).parents[2] / "docs/monitoring.md").read_text()))
    (job,) = scrape["scrape_configs"]
    with server.http() as http:
        for probe in (one for one in probes.values() if isinstance(one, dict)):
            assert http.get(probe["httpGet"]["path"]).status_code == 200
        headers = {"authorization": f"{job['authorization']['type']} {KEY}"}
        body = {"model": "tiny", "prompt": "a b c", "max_tokens": 8, "ignore_eos": True}
        for _ in range(2):
            assert http.post("/v1/completions", json=body, headers=headers).status_code == 200
        assert http.get(job["metrics_path"]).status_code == 401
        page = http.get(job["metrics_path"], headers=headers)
    families = {one.name: one for one in text_string_to_metric_families(page.text)}

    def value(name, part):
        return next(one.value for one in families[name].samples if one.name == name + part)

    for begin in ("core_", "vllm:"):
        times = {}
        for phase in ("queue", "prefill", "decode", "inference"):
            name = f"{begin}request_{phase}_time_seconds"
            assert value(name, "_count") == 2, name
            times[phase] = value(name, "_sum")
        assert min(times.values()) > 0 and times["inference"] == pytest.approx(times["prefill"] + times["decode"])
        assert value(f"{begin}generation_tokens", "_total") == 16
    assert next(iter(families["vllm:cache_config_info"].samples)).labels["block_size"] == "32"


def provoke(server):
    """Send what is answered, refused and broken off; kill the engine; end the server. Return its status."""
    good = {"authorization": f"Bearer {KEY}", "x-request-id": "mine"}
    body = {"model": "tiny", "prompt": "a b c", "max_tokens": 8, "ignore_eos": True}
    with server.http(headers=good) as http:
        assert http.post("/v1/completions", json=body).status_code == 200
        assert http.post(
            "/v1/chat/completions", json={"messages": MESSAGES, "max_tokens": 4, "stream": True}
        ).is_success
        held = {**body, "response_format": {"type": "json_object"}}
        assert http.post("/v1/completions", json=held).status_code == 200
        assert http.post("/v1/completions", content=b"{", headers={"content-type": "application/json"}).is_error
        assert http.post("/v1/completions", json={**body, "prompt": "a " * 5000}).is_error
        assert http.post("/v1/completions", json=body, headers={"authorization": "Bearer no"}).status_code == 401
        assert http.get("/nowhere%0A{}").status_code == 404
        with http.stream("POST", "/v1/completions", json={**body, "max_tokens": 900, "stream": True}) as left:
            next(left.iter_lines())
        with socket.create_connection(server.url.removeprefix("http://").split(":")) as raw:
            raw.sendall(b"NONSENSE\r\n\r\n")
            raw.recv(4096)
        os.kill(server.engine().pid, signal.SIGUSR1)  # stacks, which no logger writes
        wait(lambda: "most recent call first" in server.stderr)
        os.kill(server.engine().pid, signal.SIGKILL)
        wait(lambda: "is ready again" in server.stderr)
        assert http.post("/v1/completions", json=body).status_code == 200
    server.process.terminate()
    return server.process.wait(PATIENCE)


@pytest.mark.covers("OBS-05")
def test_every_line_of_a_server_is_a_record(server):
    assert provoke(server) == 0
    shown, logged = records(server.stdout), records(server.stderr)
    assert [one["event"] for one in shown] == ["choices", "ready"]
    assert {"what": "context", "chosen": "1024 tokens", "by": "auto"} in shown[0]["choices"]
    assert (shown[1]["model"], shown[1]["url"]) == ("tiny", server.url) and shown[1]["seconds"]["weights"] >= 0
    assert {one["what"] for one in logged if one.get("event") == "progress"} == {"loading weights"}
    answers = [one for one in logged if "route" in one]
    assert all(one.keys() >= ANSWERED and one["model"] == "tiny" for one in answers)
    mine = {(one["route"], one["status"]): one for one in answers if one["request_id"] == "mine"}
    assert {("/v1/chat/completions", 200), ("unmatched", 401), ("unmatched", 404)} <= mine.keys()
    whole = mine["/v1/completions", 200]  # the last of them
    assert whole["completion_tokens"] == 8 and whole["prompt_tokens"] > 0 and whole["error"] is None and whole["ms"] > 0
    assert mine["unmatched", 401]["error"] == "invalid_api_key"
    assert {one["error"] for one in answers} >= {None, "invalid_json", "context_length_exceeded", "route_not_found"}
    stray = [one for one in logged if one["logger"] == "core.stray"]
    assert any("most recent call first" in one["message"] for one in stray)
    assert {one["process"] for one in stray} == {"engine"} and len({one["pid"] for one in stray}) == 1
    assert {"core", "engine"} <= {one["process"] for one in logged}


@pytest.mark.parametrize(
    ("words", "level"), [(["/nowhere/at/all"], "error"), (["--debug", "/nowhere/at/all"], "critical")]
)
def test_a_start_that_fails_is_a_record(core, words, level):
    done = core("serve", "--log-format", "json", *words)
    (said,) = records(done.stderr)
    assert (done.returncode, done.stdout, said["level"]) == (1, "", level)
    assert ("Traceback" in said.get("exception", "")) == (level == "critical")
