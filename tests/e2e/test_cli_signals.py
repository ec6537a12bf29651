"""No signal at any moment of any command shows a traceback: sent at many points of a run, counted in calls."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

LOCAL = ("--threads", "1", "--num-blocks", "400", "--dtype", "float32")
SECONDS = 120
BAD = ("Traceback", "Exception ignored", "never retrieved", "Error in sys.")
FIRST = 12
"""Calls until the command has said what Ctrl-C means: earlier than that the interpreter is asked, which starts up."""
QUICK = tuple(share / 4 for share in range(5))
SHARES = tuple(share / 16 for share in range(17) if share % 4)
"""Parts of a run after which it is sent a signal."""
few_and_many = pytest.mark.parametrize(
    "shares", [pytest.param(QUICK, id="few"), pytest.param(SHARES, id="many", marks=pytest.mark.exhaustive)]
)

RUN = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs tests in the background has it ignored
from core.cli import start
at, number, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
calls = 0
def count(frame, event, arg):
    global calls
    if event == "call":
        calls += 1
        if calls == at:
            os.close(os.open(folder, os.O_CREAT | os.O_WRONLY))
            signal.raise_signal(number)
sys.argv[1:4] = []
sys.argv[0] = "core"
sys.setprofile(count)
try:
    sys.exit(start.main())
finally:
    if not at:
        sys.setprofile(None)
        print(f"calls={calls}", file=sys.stderr)
"""


def run(words, sent, at=0, number=signal.SIGTERM, stdin=""):
    """Run a command that is sent a signal at its call number `at`; return how it ended."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("CORE_")}
    command = [sys.executable, "-c", RUN, str(at), str(int(number)), str(sent), *map(str, words)]
    return subprocess.run(
        command, input=stdin, capture_output=True, text=True, timeout=SECONDS, env=plain, start_new_session=True
    )


def calls_of(words, sent, stdin=""):
    done = run(words, sent, stdin=stdin)
    return int(done.stderr.rpartition("calls=")[2].split()[0]), done


def check(done, sent, number):
    """The signal was sent; the process ended by it, or had just finished; it said nothing about its inside."""
    said = done.stdout + done.stderr
    assert not any(word in said for word in BAD), said
    assert not sent.exists() or done.returncode in (128 + number, -number, 0, 1, 2), (done.returncode, said)


def every_point(words, tmp_path, shares, numbers=(signal.SIGINT, signal.SIGTERM), stdin=""):
    total, done = calls_of(words, tmp_path / "never", stdin)
    assert not any(word in done.stderr for word in BAD), done.stderr
    ended = 0
    for index, share in enumerate(shares):
        number = numbers[index % len(numbers)]
        sent = tmp_path / f"sent{index}"
        done = run(words, sent, max(FIRST, int(total * share)), number, stdin)
        check(done, sent, number)
        ended += sent.exists() and done.returncode in (128 + number, -number)
    assert ended > len(shares) // 3, "the signals came too late"


class Answers(BaseHTTPRequestHandler):
    """As much of a server as `run-batch --url` and `chat --url` need."""

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self._answer(
            {"id": "x", "choices": [{"index": 0, "text": "a", "message": {"role": "assistant", "content": "a"}}]}
        )

    def do_GET(self):
        self._answer({"object": "list", "data": [{"id": "m", "max_model_len": 100}]})

    def _answer(self, value):
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args):
        """Say nothing."""


@pytest.fixture(scope="module")
def url():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def batch(tmp_path):
    body = {"prompt": "a", "max_tokens": 3, "ignore_eos": True}
    lines = [
        {"custom_id": f"r{index}", "method": "POST", "url": "/v1/completions", "body": body} for index in range(20)
    ]
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.mark.parametrize(
    "words",
    [("plugins", "list"), ("config",), ("ls",), ("--help",), ("pull", "/nowhere/at/all"), ("chat", "--quick", "hi")],
    ids=" ".join,
)
@few_and_many
def test_quick_commands(words, shares, url, tmp_path):
    more = ("--url", url) if words[0] == "chat" else ()
    every_point((*words, *more), tmp_path, shares)


@few_and_many
def test_a_batch(shares, batch, url, tmp_path):
    out = tmp_path / "out.jsonl"
    words = ("run-batch", "-i", batch, "-o", out, "--url", url, "--overwrite", "--concurrency", "2")
    every_point(words, tmp_path, shares)


@pytest.mark.parametrize(
    "shares",
    [
        pytest.param((0.6, 0.9, 0.97), id="few"),
        pytest.param((0.3, 0.8, 1), id="many", marks=pytest.mark.exhaustive),
    ],
)
def test_a_batch_with_a_model(shares, batch, tiny, tmp_path):
    words = ("run-batch", "-i", batch, "-o", tmp_path / "out.jsonl", "--model", tiny, "--overwrite", *LOCAL)
    every_point(words, tmp_path, shares, (signal.SIGTERM,))


def test_a_chat_with_a_model(tiny, tmp_path):
    every_point(("run", tiny, "--quick", "hi", *LOCAL), tmp_path, (0.5, 0.9, 0.97), (signal.SIGTERM, signal.SIGINT))


def served(words, sent, at=0, number=signal.SIGTERM):
    """As `run` for a server, which is ended by a SIGTERM of its own once it is ready."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("CORE_")}
    command = [sys.executable, "-c", RUN, str(at), str(int(number)), str(sent), *map(str, words)]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=plain, start_new_session=True, **pipes) as process:
        lines = []
        for line in process.stdout:
            lines.append(line)
            if line.startswith("ready:"):
                process.send_signal(signal.SIGTERM)
        errors = process.stderr.read()
    return subprocess.CompletedProcess(command, process.returncode, "".join(lines), errors)


@pytest.mark.parametrize(
    "shares",
    [
        pytest.param((0.3, 0.8, 0.97), id="few"),
        pytest.param((0.02, 0.6, 0.9, 1), id="many", marks=pytest.mark.exhaustive),
    ],
)
def test_a_server(shares, tiny, tmp_path):
    words = ("serve", tiny, "--port", "0", *LOCAL)
    done = served(words, tmp_path / "never")
    total, ended = int(done.stderr.rpartition("calls=")[2].split()[0]), 0
    for index, share in enumerate(shares):
        number, sent = (signal.SIGTERM, signal.SIGINT)[index % 2], tmp_path / f"sent{index}"
        done = served(words, sent, int(total * share), number)
        check(done, sent, number)
        ended += sent.exists() and done.returncode in (128 + number, -number)
    assert ended > len(shares) // 3


def test_a_benchmark(tiny, tmp_path):
    words = ("bench", "latency", "--model", tiny, "--input-len", "8", "--output-len", "4", *LOCAL)
    every_point(words, tmp_path, (0.2, 0.5, 0.8, 0.95))
