"""Models of a hub, from the download to a server without a network, with real processes."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from core_testing.tinyhub import TinyHub, TinyRepo

CORE = Path(sys.executable).with_name("core")
TOKEN = "hf_Secret-of.the_User"
FLAGS = ("--threads", "1", "--dtype", "float32", "--num-blocks", "100")

# Loaded by every Python process of the test: whoever opens a connection to anything but a local file is ended.
BLOCKED = """
import os, socket
def refuse(self, address):
    if self.family != socket.AF_UNIX:
        os.write(2, f"BLOCKED {address}\\n".encode())
        os._exit(99)
    return plain(self, address)
plain = socket.socket.connect
socket.socket.connect = socket.socket.connect_ex = refuse
def lookup(host, *arguments, **named):
    if host not in (None, "127.0.0.1"):
        os.write(2, f"BLOCKED {host}\\n".encode())
        os._exit(99)
    return names(host, *arguments, **named)
names = socket.getaddrinfo
socket.getaddrinfo = lookup
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("hub")


@pytest.fixture(scope="module")
def environment(folder):
    """A home of its own, in which somebody has logged in with `hf auth login`."""
    (folder / "hf").mkdir()
    (folder / "hf" / "token").write_text(TOKEN)
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("CORE_", "HF_", "HUGGING"))}
    mine = {"HOME": str(folder), "HF_HOME": str(folder / "hf"), "XDG_RUNTIME_DIR": str(folder / "run")}
    return {**plain, **mine, "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}


@pytest.fixture(scope="module")
def pulled(folder, environment, tiny):
    """What two `core pull` at a time print, and what the hub saw; the hub is gone afterwards."""
    repo = TinyRepo.of(tiny)
    repo.token = TOKEN
    with TinyHub({"acme/tiny": repo}) as hub:
        hub.gate.clear()
        words = [CORE, "pull", "acme/tiny", "--hf-token", "--log-level", "debug"]
        command = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "stdin": subprocess.DEVNULL}
        both = [subprocess.Popen(words, env={**environment, "HF_ENDPOINT": hub.url}, **command) for _ in range(2)]
        deadline = time.monotonic() + 60
        while sum("/api/models/" in one.path for one in hub.seen) < 2 and time.monotonic() < deadline:
            time.sleep(0.02)
        hub.gate.set()
        done = [(*process.communicate(timeout=60), process.returncode) for process in both]
    return done, hub


def run(environment, *words):
    done = subprocess.run([CORE, *words], env=environment, capture_output=True, text=True, timeout=60)
    assert TOKEN not in done.stdout + done.stderr
    return done


@pytest.mark.covers("CLI-05")
def test_two_pulls_with_the_stored_token(pulled, folder):
    done, hub = pulled
    for out, err, status in done:
        assert status == 0, err
        assert out.startswith(f"acme/tiny: {folder}/hf/hub/models--acme--tiny/snapshots/")
        assert TOKEN not in out + err
        # The last line; whoever came second may have found everything there.
        assert "fetching: 100 %" in err
    assert {one.token for one in hub.seen if "tiny" in one.path} == {TOKEN}
    assert len(hub.fetched("model.safetensors")) == 1


@pytest.mark.covers("CLI-05")
def test_ctrl_c_ends_a_download_and_the_next_one_goes_on(folder, environment, tmp_path):
    """The server holds the weights back for good: nothing but the signal ends the command."""
    files = {"config.json": b"{}", "model.safetensors": bytes(2**21), "tokenizer.json": b"[]"}
    with TinyHub({"acme/large": TinyRepo(files)}) as hub:
        hub.gate.clear()
        mine = {**environment, "HF_ENDPOINT": hub.url, "HF_TOKEN": "hf_other"}
        words = [CORE, "pull", "acme/large", "--download-dir", tmp_path]
        process = subprocess.Popen(words, env=mine, stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 60
        while not hub.fetched("model.safetensors") and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=10)
        assert process.returncode == 130 and "Traceback" not in err, err
        assert run(mine, "ls", "--json", "--download-dir", str(tmp_path)).stdout.count("acme/large") == 0
        name = hashlib.sha256(files["model.safetensors"]).hexdigest()
        (tmp_path / "models--acme--large" / "blobs" / f"{name}.incomplete").write_bytes(bytes(2**20))
        hub.gate.set()
        done = run(mine, "pull", "acme/large", "--download-dir", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert hub.fetched("model.safetensors")[-1].asked == f"bytes={2**20}-"
    assert {one.token for one in hub.seen if "large" in one.path} == {"hf_other"}


@pytest.fixture(scope="module")
def server(pulled, launch, folder, environment):
    """The model served from the cache, where no process can reach anything."""
    site = folder / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(BLOCKED)
    names = ("HOME", "HF_HOME", "XDG_RUNTIME_DIR")
    variables = {name: environment[name] for name in names}
    variables |= {"PYTHONPATH": str(site), "HF_HUB_OFFLINE": "1"}
    return launch("acme/tiny", "--hf-token", TOKEN, *FLAGS, **variables).wait_ready()


@pytest.mark.covers("CLI-05", "SEC-01")
def test_without_a_network_the_model_is_served(server):
    with server.http() as http:
        body = {"model": "acme/tiny", "prompt": "blocks", "max_tokens": 5, "ignore_eos": True}
        answer = http.post("/v1/completions", json=body).json()
        info = http.get("/server_info")
    assert answer["usage"]["completion_tokens"] == 5
    assert info.json()["options"]["hub"]["hf_token"] == "(secret)" and TOKEN not in info.text
    assert "BLOCKED" not in server.stderr
    assert TOKEN not in server.stdout + server.stderr
    assert TOKEN not in " ".join(server.engine().cmdline())


def test_the_block_blocks(folder, server):
    code = "import socket; socket.create_connection(('127.0.0.1', 9))"
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(folder / "site")})
    assert done.returncode == 99


def test_a_running_server_is_listed_and_stopped(server, environment):
    (listed,) = json.loads(run(environment, "ps", "--json").stdout)
    assert (listed["url"], listed["model"], listed["pid"]) == (server.url, "acme/tiny", server.process.pid)
    wrong = run(environment, "stop", "acme/other")
    assert wrong.returncode == 1 and "CORE-S193" in wrong.stderr and server.url in wrong.stderr
    family = server.family()
    done = run(environment, "stop", server.url + "/")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"stopped acme/tiny at {server.url} (process {server.process.pid})\n"
    assert server.process.wait(5) == 0
    assert psutil.wait_procs(family, timeout=5)[1] == []
    assert run(environment, "ps").stdout == "no server is running\n"
