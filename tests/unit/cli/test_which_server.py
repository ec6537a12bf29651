"""Which server `core chat` talks to when it is not told: the one that `core ps` knows."""

from __future__ import annotations

import io
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler
from socketserver import UnixStreamServer

import pytest

from core.api.errors import EngineError
from core.cli.choose import DEFAULT_URL, server_url
from core.cli.client import connect
from core.cli.main import main
from core.server.registry import RunningServer


@pytest.fixture
def running(monkeypatch):
    """`running(*(model, url))` are the servers that `core ps` lists."""

    def run(*servers):
        found = [RunningServer(pid, 1.0, url, model) for pid, (model, url) in enumerate(servers, 1)]
        monkeypatch.setattr("core.server.registry.running_servers", lambda: found)

    return run


SMALL, LARGE = ("small", "http://127.0.0.1:8001"), ("large", "http://127.0.0.1:8002")


@pytest.mark.parametrize(
    ("servers", "given", "model", "expected"),
    [
        ([], None, None, DEFAULT_URL),
        ([SMALL], None, None, SMALL[1]),
        ([SMALL], None, "an adapter of it", SMALL[1]),
        ([SMALL], "http://there:1", None, "http://there:1"),
        ([SMALL, LARGE], None, "large", LARGE[1]),
        ([SMALL, LARGE], "http://there:1", None, "http://there:1"),
        ([("small", "http://0.0.0.0:80")], None, None, "http://127.0.0.1:80"),
        ([("small", "https://[::]:80")], None, None, "https://[::1]:80"),
        ([("small", "unix:/run/a.sock")], None, None, "unix:/run/a.sock"),
    ],
)
def test_the_server_that_is_meant(running, servers, given, model, expected):
    running(*servers)
    assert server_url(given, model) == expected


@pytest.mark.parametrize("command", ["chat", "complete"])
def test_several_servers_are_named_to_a_program(running, capsys, command):
    running(SMALL, LARGE)
    assert main([command, "-q", "hi"]) == 1
    assert capsys.readouterr().err == (
        "core: CORE-S193 several servers are running: small at http://127.0.0.1:8001 (process 1), "
        "large at http://127.0.0.1:8002 (process 2). Name one with --url.\n"
    )


class Terminal(io.StringIO):
    def isatty(self):
        return True


def at_terminal(monkeypatch, typed):
    monkeypatch.setattr(sys, "stdin", Terminal(typed))
    monkeypatch.setattr(sys, "stderr", Terminal())
    return sys.stderr


def test_a_user_is_asked_which(running, monkeypatch):
    running(SMALL, LARGE)
    shown = at_terminal(monkeypatch, "three\n0\n3\n2\n")
    assert server_url(None, ask=True) == LARGE[1]
    assert shown.getvalue().splitlines()[:3] == [
        "several servers are running:",
        "1  small  http://127.0.0.1:8001",
        "2  large  http://127.0.0.1:8002",
    ]
    assert shown.getvalue().count("which one? 1 to 2: ") == 4


def test_a_user_who_does_not_say_gets_the_error(running, monkeypatch):
    running(SMALL, LARGE)
    at_terminal(monkeypatch, "")
    with pytest.raises(EngineError, match="CORE-S193"):
        server_url(None, ask=True)


def test_chat_answers_from_the_one_that_runs(running, stub, capsys):
    running(("stub-model", stub.url))
    assert main(["chat", "-q", "hi"]) == 0
    assert capsys.readouterr().out == "w0 w1 w2 w3 \n"


class Models(BaseHTTPRequestHandler):
    """Answers every question with a list of one model, named as the host that was asked."""

    def do_GET(self):
        body = json.dumps({"data": [{"id": self.headers["Host"]}]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args): ...


def test_a_server_on_a_socket(tmp_path):
    path = f"{tmp_path}/a.sock"
    with UnixStreamServer(path, Models) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        client = connect(f"unix:{path}", api_key=None, model=None, verify=True)
        assert (client.model, client.place) == ("localhost", f"unix:{path}")
        client.close()
        thread.join(10)
