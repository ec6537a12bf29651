"""User and key over real HTTP: a policy serves by user, a hook refuses by key, a sink bills; no key is written down."""

from __future__ import annotations

import json
import subprocess
import time

import pytest

from core.api import key_id

from .conftest import CORE, PATIENCE, POLL, TINY_FLAGS, plain_env

KEY, ADMIN = "sk-of-the-team-5d1f", "sk-of-the-operators-77c2"
PLUGIN = '''
import json
import pathlib
from dataclasses import asdict

from pydantic import BaseModel

from core.api import Reject, SchedulerPolicySpec, StatSinkSpec, hookimpl, key_id


class LedgerOptions(BaseModel):
    path: str


class ByUser:
    """Requests of `vip` before all others."""

    def key(self, request):
        return (request.caller.user != "vip", request.arrival)

    def victim(self, running):
        return len(running) - 1


class Ledger:
    def __init__(self, options):
        self.file = pathlib.Path(options["path"]).open("a", encoding="utf-8", buffering=1)

    def record(self, stats): ...

    def finished(self, request):
        self.file.write(json.dumps(asdict(request)) + "\\n")

    def close(self):
        self.file.close()


@hookimpl
def core_request(request):
    if request.caller.key == "REFUSED":
        return Reject("this key only looks after the server", status=403, code="wrong_key")


__core_drivers__ = [
    SchedulerPolicySpec(name="by_user", impl="callers:ByUser", api=1, summary="", maturity="experimental"),
    StatSinkSpec(name="ledger", impl="callers:Ledger", api=1, summary="", options="callers:LedgerOptions"),
]
'''


@pytest.fixture(scope="module")
def plugged(tmp_path_factory):
    """Flags that let the plugin take part, and where its ledger is."""
    folder = tmp_path_factory.mktemp("plugin")
    (folder / "callers.py").write_text(PLUGIN.replace("REFUSED", key_id(ADMIN)))
    ledger = folder / "ledger.jsonl"
    flags = [f"--plugin-file={folder / 'callers.py'}", "--scheduler-policy=by_user", "--stat-sink=ledger"]
    return [*flags, "--opt", f"ledger.path={ledger}"], ledger


@pytest.fixture(scope="module")
def server(launch, tiny, plugged):
    flags = ["--max-num-seqs", "1", "--log-requests", "--log-level", "debug"]
    keys = {"CORE_API_KEY": KEY, "CORE_ADMIN_API_KEY": ADMIN}
    return launch(str(tiny), *TINY_FLAGS, *flags, *plugged[0], **keys).wait_ready()


def post(server, path, body, key=KEY):
    with server.http(headers={"authorization": f"Bearer {key}"}) as http:
        return http.post(path, json={"model": "tiny", "ignore_eos": True, **body})


def billed(ledger, count):
    """Wait for so many lines of the ledger and return `(user, key)` of each."""
    deadline = time.monotonic() + PATIENCE
    while len(lines := ledger.read_text().splitlines() if ledger.exists() else []) < count:
        assert time.monotonic() < deadline, lines
        time.sleep(POLL)
    return [(one["caller"]["user"], one["caller"]["key"]) for one in map(json.loads, lines)]


MESSAGES = [{"role": "user", "content": "Hello"}]


def test_a_policy_serves_by_user_and_a_hook_refuses_by_key(server, plugged):
    _, ledger = plugged
    before = len(ledger.read_text().splitlines()) if ledger.exists() else 0
    with server.http(headers={"x-api-key": KEY}) as http:
        many = {"model": "tiny", "prompt": "a", "n": 100, "max_tokens": 900, "ignore_eos": True, "stream": True}
        with http.stream("POST", "/v1/completions", json={**many, "user": "ann"}) as running:
            lines = running.iter_lines()  # the request ends with it
            next(lines)
            assert post(server, "/v1/completions", {"prompt": "b", "max_tokens": 2, "user": "vip"}).status_code == 200
    assert billed(ledger, before + 2)[before:] == [("vip", key_id(KEY)), ("ann", key_id(KEY))]
    refused = post(server, "/v1/completions", {"prompt": "a"}, ADMIN)
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "wrong_key")
    assert post(server, "/v1/completions", {"prompt": "a", "max_tokens": 1}, "sk-else").status_code == 401


def test_every_api_and_batch_files_say_who_asks(server, plugged, tiny, tmp_path):
    flags, ledger = plugged
    asked = [
        ("/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 1, "user": "chat"}, "chat"),
        ("/v1/completions", {"prompt": "a", "max_tokens": 1, "safety_identifier": "text"}, "text"),
        ("/v1/messages", {"messages": MESSAGES, "max_tokens": 1, "metadata": {"user_id": "claude"}}, "claude"),
        ("/v1/responses", {"input": "a", "max_output_tokens": 1, "user": "response"}, "response"),
        ("/v1/completions", {"prompt": "a", "max_tokens": 1, "n": 2, "use_beam_search": True, "user": "beam"}, "beam"),
        ("/v1/completions", {"prompt": "a", "max_tokens": 1}, ""),
    ]
    before = len(billed(ledger, 0))
    for path, body, _ in asked:
        assert post(server, path, body).status_code == 200
    found = billed(ledger, before + len(asked))[before:]
    assert sorted(found) == sorted((user, key_id(KEY)) for _, _, user in asked)

    batch, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    body = {"model": "tiny", "messages": MESSAGES, "max_tokens": 1, "user": "batch"}
    line = {"custom_id": "1", "method": "POST", "url": "/v1/chat/completions", "body": body}
    batch.write_text(json.dumps(line) + "\n")
    command = [CORE, "run-batch", "-i", batch, "-o", out, "--model", tiny, *TINY_FLAGS, *flags]
    subprocess.run(command, env=plain_env(), check=True, capture_output=True, timeout=90)
    assert billed(ledger, before + len(asked) + 1)[-1][0] == "batch"


def test_no_key_is_written_anywhere(server, plugged):
    post(server, "/v1/completions", {"prompt": "a", "max_tokens": 1, "user": "someone"})
    with server.http(headers={"authorization": f"Bearer {ADMIN}"}) as http:
        shown = "".join(http.get(path).text for path in ("/metrics", "/core/plugins", "/core/config", "/v1/models"))
    written = shown + server.stdout + server.stderr + plugged[1].read_text()
    assert "core_num_requests_waiting" in written and "/v1/completions 200" in written
    for key in (KEY, ADMIN):
        assert key not in written
        assert key_id(key) not in shown + server.stdout + server.stderr
    assert "someone" not in shown + server.stdout + server.stderr
