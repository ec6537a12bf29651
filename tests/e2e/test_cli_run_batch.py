"""`core run-batch` against a server and with a model of its own, and what an interruption leaves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

CORE = Path(sys.executable).with_name("core")
LOCAL = ("--threads", "1", "--num-blocks", "400", "--dtype", "float32")
PATIENCE = 60


def completion(index, tokens=4):
    body = {"prompt": f"number {index}", "max_tokens": tokens, "ignore_eos": True, "temperature": 0}
    return {"custom_id": f"r{index}", "method": "POST", "url": "/v1/completions", "body": body}


def write(path, lines):
    path.write_text("".join((one if isinstance(one, str) else json.dumps(one)) + "\n" for one in lines))
    return path


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def texts(path):
    return {one["custom_id"]: one["response"]["body"]["choices"][0]["text"] for one in read(path)}


def _own_session():
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # whoever runs tests in the background has it ignored


@pytest.fixture
def start(tmp_path):
    """`start(*words)` runs `core run-batch *words` in the background."""
    started = []

    def start(*words):
        plain = {name: value for name, value in os.environ.items() if not name.startswith("CORE_")}
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        command = [str(CORE), "run-batch", *map(str, words)]
        started.append(subprocess.Popen(command, env=plain, preexec_fn=_own_session, **pipes))
        return started[-1]

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def wait_for_answers(path, count):
    part = path.with_name(f"{path.name}.part")
    deadline = time.monotonic() + PATIENCE
    while not part.exists() or part.read_bytes().count(b"\n") < count:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_every_route_of_a_server_in_one_file(core, tiny_server, tmp_path):
    chat = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 3}
    lines = [
        completion(0),
        {"custom_id": "tokens", "method": "POST", "url": "/tokenize", "body": {"prompt": "one two"}},
        {"custom_id": "model", "method": "POST", "url": "/v1/completions", "body": {"model": "gpt-9", "prompt": "x"}},
        {
            "custom_id": "limit",
            "method": "POST",
            "url": "/v1/completions",
            "body": {"prompt": "x", "max_tokens": 10**6},
        },
        {"custom_id": "route", "method": "POST", "url": "/v1/no/such/route", "body": chat},
        "{not json",
        completion(1),
    ]
    path, out = write(tmp_path / "in.jsonl", lines), tmp_path / "out.jsonl"
    result = core("run-batch", "-i", path, "-o", out, "--url", f"{tiny_server.url}/v1/")
    assert result.returncode == 1, result.stderr
    answers = {one["custom_id"]: one["response"]["body"] for one in read(out)}
    assert list(answers) == ["r0", "tokens", "r1"]
    assert answers["r0"]["usage"]["completion_tokens"] == 4 and answers["tokens"]["count"] > 1
    failed = {one["custom_id"]: one for one in read(tmp_path / "out.errors.jsonl")}
    codes = {name: (one["response"] or {}).get("status_code") for name, one in failed.items()}
    assert codes == {None: None, "model": 404, "limit": 400, "route": 404}
    assert "line 6" in result.stderr and "3 answered, 4 failed" in result.stdout


def test_a_model_of_its_own_answers_as_a_server_does(core, tiny_server, tiny, tmp_path):
    path = write(tmp_path / "in.jsonl", [completion(index) for index in range(6)])
    served = core("run-batch", "-i", path, "-o", tmp_path / "served.jsonl", "--url", tiny_server.url)
    own = core("run-batch", "-i", path, "-o", tmp_path / "own.jsonl", "--model", tiny, *LOCAL)
    assert (served.returncode, own.returncode) == (0, 0), served.stderr + own.stderr
    assert texts(tmp_path / "own.jsonl") == texts(tmp_path / "served.jsonl")


COUNT, LENGTH = 40, 150
"""Requests and the tokens of each: the tiny model is at them for seconds, and is interrupted after hundredths."""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_what_was_interrupted_goes_on(core, start, tiny_server, tiny, tmp_path, number):
    path, out = (
        write(tmp_path / "in.jsonl", [completion(index, LENGTH) for index in range(COUNT)]),
        tmp_path / "out.jsonl",
    )
    words = ("-i", path, "-o", out, "--concurrency", "2")
    process = start(*words, "--model", tiny, *LOCAL)
    wait_for_answers(out, 3)
    family = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(number)
    said = process.communicate(timeout=PATIENCE)[0].decode()
    status = {signal.SIGINT: 130, signal.SIGTERM: 128 + number, signal.SIGKILL: -number}[number]
    assert process.returncode == status and "Traceback" not in said and not out.exists()
    assert not psutil.wait_procs(family, timeout=20)[1], "the engine goes on"
    kept = (tmp_path / "out.jsonl.part").read_bytes().count(b"\n")
    assert 3 <= kept < COUNT
    before = generated(tiny_server)
    result = core("run-batch", *words, "--url", tiny_server.url)
    assert result.returncode == 0, result.stderr
    assert f"{COUNT} answered ({kept} of them before), 0 failed" in result.stdout
    assert generated(tiny_server) - before == (COUNT - kept) * LENGTH
    assert [one["custom_id"] for one in read(out)] == [f"r{index}" for index in range(COUNT)]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["in.jsonl", "out.jsonl"]


def generated(server):
    return server.gauges()["core_generation_tokens_total"]


def test_a_second_run_on_the_same_output_is_refused(core, start, tiny_server, tmp_path):
    path, out = write(tmp_path / "in.jsonl", [completion(index, 400) for index in range(40)]), tmp_path / "out.jsonl"
    process = start("-i", path, "-o", out, "--url", tiny_server.url, "--concurrency", "1")
    wait_for_answers(out, 1)
    second = core("run-batch", "-i", path, "-o", out, "--url", tiny_server.url)
    assert process.poll() is None
    assert second.returncode == 2 and "CORE-C181" in second.stderr
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE) == 130


def test_no_server(core, tmp_path):
    path, out = write(tmp_path / "in.jsonl", [completion(0)]), tmp_path / "out.jsonl"
    result = core("run-batch", "-i", path, "-o", out, "--url", "http://127.0.0.1:9", "--max-retries", "1")
    assert result.returncode == 1 and "CORE-S190" in result.stderr and not out.exists()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["in.jsonl"]
