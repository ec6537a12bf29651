"""Prompts, and real `core` processes, for end-to-end tests."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import psutil
import pytest

PROMPTS = [
    "The capital of France is",
    "Once upon a time, in a small village by the sea,",
    "def fibonacci(n):\n    ",
    "The three laws of thermodynamics are",
    "Q: What is 12 times 7?\nA:",
    "Dear Sir or Madam,\n\nI am writing to",
    "Wasser, Feuer, Luft und",
    "1, 1, 2, 3, 5, 8, 13,",
    "<|im_start|>user\nWho are you?<|im_end|>\n<|im_start|>assistant\n",
    "The quick brown fox",
    "To make pancakes you need",
    "import numpy as np\n\nx = np.",
    "In 1969, astronauts",
    "The opposite of hot is",
    "Roses are red,",
    "Water boils at",
]


@pytest.fixture(scope="session")
def prompts() -> list[str]:
    return PROMPTS


CORE = Path(sys.executable).with_name("core")
# One thread: OpenMP teams that spin for a core which somebody else has make everything ten times slower.
DEMO_FLAGS = ("--threads", "1", "--dtype", "bfloat16", "--max-model-len", "1024", "--num-blocks", "400")
TINY_FLAGS = ("--threads", "1", "--dtype", "float32", "--num-blocks", "400", "--served-model-name", "tiny")
PAGES = Path(__file__).parents[2] / "plugins/routes/webui/src/core_plugin_webui/static/build.json"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
START_SECONDS = 90
STOP_SECONDS = 20
PATIENCE = 30
POLL = 0.1
_ESCAPES = re.compile(r"\x1b\[[?\d;]*[A-Za-z]")


class CoreServer:
    """One `core serve` process on a free port of 127.0.0.1, and what it has printed.

    Attributes:
        url: Known once `wait_ready` has returned.
    """

    def __init__(self, folder: Path, *words: str, **variables: str) -> None:
        self._out, self._err = folder / "stdout", folder / "stderr"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            command = [CORE, "serve", "--host", "127.0.0.1", *words]
            env = {**plain_env(), **variables}
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=env)
        self.url = ""

    @property
    def stdout(self) -> str:
        return self._out.read_text(encoding="utf-8")

    @property
    def stderr(self) -> str:
        return self._err.read_text(encoding="utf-8")

    def wait_ready(self) -> CoreServer:
        deadline = time.monotonic() + START_SECONDS
        while (
            found := re.search(
                r'^(?:ready: |\{.*"message": "ready: )\S+ at (https?://[^\s"]+)(?:$|")', self.stdout, re.MULTILINE
            )
        ) is None:
            if self.process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"the server did not start (status {self.process.poll()}):\n{self.stdout}\n{self.stderr}")
            time.sleep(0.05)
        self.url = found[1]
        return self

    def engine(self) -> psutil.Process:
        """The one child process; it may have some of its own, in which grammars are compiled."""
        (child,) = psutil.Process(self.process.pid).children()
        return child

    def family(self) -> list[psutil.Process]:
        me = psutil.Process(self.process.pid)
        return [me, *me.children(recursive=True)]

    def cpu_seconds(self) -> float:
        """Processor time of the server and its engine; unlike the clock, it does not count what others use."""
        return sum(sum(process.cpu_times()[:2]) for process in self.family())

    def http(self, **options) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=60, trust_env=False, **options)

    def openai(self) -> openai.OpenAI:
        return openai.OpenAI(
            base_url=f"{self.url}/v1", api_key="none", max_retries=0, timeout=60, _strict_response_validation=True
        )

    def gauges(self) -> dict[str, float]:
        """The samples of /metrics that have no labels but the model's name."""
        with self.http() as http:
            lines = re.sub(r'\{model_name="[^"]*"\}', "", http.get("/metrics").text).splitlines()
        pairs = (line.rsplit(" ", 1) for line in lines if line and not line.startswith("#") and "{" not in line)
        return {name: float(value) for name, value in pairs}

    def end(self) -> None:
        """End the process and what it started, whatever state they are in."""
        family = self.family() if self.process.poll() is None else []
        if family:
            self.process.terminate()
        _, alive = psutil.wait_procs(family, timeout=STOP_SECONDS)
        for process in alive:
            process.kill()
        self.process.wait(STOP_SECONDS)


class Terminal:
    """A command on a terminal of its own.

    Attributes:
        raw: Everything it has written.
    """

    def __init__(self, command, env, *, height=24):
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", height, 80, 0, 0))
        self.process = subprocess.Popen(
            list(map(str, command)), stdin=slave, stdout=slave, stderr=slave, env=env, preexec_fn=_take_terminal
        )
        self._master, self._slave = master, slave
        self.raw = ""
        self._seen = 0

    @property
    def text(self):
        return _ESCAPES.sub("", self.raw)

    @property
    def echoes(self):
        return bool(termios.tcgetattr(self._slave)[3] & termios.ECHO)

    def type(self, text):
        os.write(self._master, text.encode())

    def expect(self, pattern):
        """Wait for something that was not there at the last call; return the match."""
        quiet = 0.0  # waited in vain, not by the clock: a machine may stop for a while
        while (found := re.search(pattern, self.text[self._seen :])) is None:
            before = len(self.raw)
            alive = self._read()
            quiet += POLL if len(self.raw) == before else 0.0
            if quiet > PATIENCE or not alive:
                status = self.process.poll()
                pytest.fail(f"{pattern!r} did not come (status {status}); there is {self.text[self._seen :]!r}")
        self._seen += found.end()
        return found

    def prompt(self):
        """Wait until the command reads a line.

        It shows the prompt a little before it notices Ctrl-C, and a terminal that is not raw yet drops Ctrl-D.
        """
        self.expect("> ")
        while termios.tcgetattr(self._slave)[3] & termios.ICANON:
            time.sleep(0.01)
        time.sleep(0.2)

    def wait(self):
        """Wait for the end of the command and return its status."""
        quiet = 0.0
        before = len(self.raw)
        while self._read():
            quiet = quiet + POLL if len(self.raw) == before else 0.0
            before = len(self.raw)
            if quiet > PATIENCE:
                pytest.fail(f"it goes on; there is {self.text[self._seen :]!r}")
        return self.process.wait(PATIENCE)

    def hang_up(self):
        os.close(self._slave)
        os.close(self._master)
        self._master = self._slave = -1

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self._master >= 0:
            os.close(self._slave)
            os.close(self._master)

    def _read(self):
        """Read what there is; return whether more may come."""
        ended = self.process.poll() is not None
        ready, _, _ = select.select([self._master], [], [], 0 if ended else POLL)
        if ready:
            self.raw += os.read(self._master, 65536).decode(errors="replace")
        return bool(ready) or not ended


def _take_terminal():
    os.setsid()
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):  # what runs in the background has them ignored
        signal.signal(number, signal.SIG_DFL)
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def plain_env() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("CORE_")}


@pytest.fixture(scope="module")
def launch(tmp_path_factory):
    """`launch(*words, NAME=value)` starts `core serve *words` with environment variables; all end after the module."""
    started: list[CoreServer] = []

    def launch(*words: str, **variables: str) -> CoreServer:
        port = () if "--port" in words else ("--port", "0")
        started.append(CoreServer(tmp_path_factory.mktemp("server"), *port, *words, **variables))
        return started[-1]

    yield launch
    for server in started:
        server.end()


@pytest.fixture(scope="session")
def tiny(tmp_path_factory) -> Path:
    """A random checkpoint for which only the machinery around the model matters."""
    from core_testing.tinymodels import tiny_llama

    return tiny_llama(tmp_path_factory.mktemp("tiny") / "llama", max_position_embeddings=1024)


@pytest.fixture(scope="session")
def scripted(tmp_path_factory) -> tuple[str, str]:
    """The example of a model that answers with its prompt's last message: its checkpoint, and where its plugin is."""
    folder = tmp_path_factory.mktemp("scripted")
    plugin, checkpoint = str(folder / "plugin"), str(folder / "scripted")
    source = Path(__file__).parents[2] / "examples/plugins/scripted_model"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--target", plugin, source], check=True, timeout=120, stdin=subprocess.DEVNULL)
    write = "import sys; from pathlib import Path; from acme_core_scripted.checkpoint import write_checkpoint as write"
    command = [sys.executable, "-c", f"{write}; write(Path(sys.argv[1]))", checkpoint]
    subprocess.run(command, check=True, timeout=60, env={**plain_env(), "PYTHONPATH": plugin})
    return checkpoint, plugin


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Headless Chromium or Chrome, as this machine has it. Of a module: its event loop stands in the way of others."""
    if not PAGES.is_file():
        pytest.skip("the web pages are not built here, because npm was missing")
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        pytest.skip(f"no browser is installed here that the pages could be opened in ({', '.join(BROWSERS)})")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # root may have no sandbox, and containers give little shared memory
        one = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield one
        one.close()


@pytest.fixture(scope="session")
def axe() -> Callable[[Any], list[str]]:
    """`axe(page)` returns what axe-core finds wrong with a page as it is now, a line for each rule."""
    source = Path(__file__).parents[2] / "plugins/routes/webui/web/node_modules/axe-core/axe.min.js"
    if not source.is_file():
        pytest.skip("axe-core is not installed here (npm brings it when the pages are built)")

    def check(page: Any) -> list[str]:
        page.evaluate(source.read_text(encoding="utf-8"))
        found = page.evaluate("axe.run()")["violations"]
        return [f"{one['id']}: {one['help']}: {[node['target'] for node in one['nodes']][:3]}" for one in found]

    return check


@pytest.fixture
def tab(browser) -> Iterator[Callable[..., Any]]:
    """`tab(url, **options)` opens a page in a profile of its own; what the console said, or asked of others, fails."""
    contexts, heard = [], []

    def tab(url: str, *, context: Any = None, **options: Any) -> Any:
        own = context or browser.new_context(**options)
        contexts.append(own)
        page = own.new_page()
        page.set_default_timeout(PATIENCE * 1000)
        page.on("pageerror", lambda error: heard.append(str(error)))
        page.on("console", lambda said: heard.append(said.text) if _is_bad(said) else None)
        page.on(
            "request", lambda one: None if one.url.startswith((url[:16], "blob:", "data:")) else heard.append(one.url)
        )
        page.goto(url)
        return page

    yield tab
    for context in contexts:
        context.close()
    assert heard == []


def _is_bad(said: Any) -> bool:
    """Whether a line of the console is an error of the page; that the server refused a key, or is gone, is none."""
    return said.type == "error" and not said.text.startswith("Failed to load resource")


@pytest.fixture(scope="module")
def server(launch) -> CoreServer:
    """The demo model."""
    return launch("smollm2", *DEMO_FLAGS).wait_ready()


@pytest.fixture(scope="module")
def tiny_server(launch, tiny) -> CoreServer:
    """The random checkpoint in float32, so that batching does not change tokens."""
    return launch(str(tiny), *TINY_FLAGS).wait_ready()


@pytest.fixture
def core():
    """`core(*words)` runs the command to its end and returns status, stdout and stderr."""

    def core(*words: str, timeout: float = 60, **options) -> subprocess.CompletedProcess[str]:
        command = [str(CORE), *map(str, words)]
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            env=plain_env(),
            **options,
        )

    return core


@pytest.fixture
def folder():
    """A short path: sockets in it have a name of at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="cli-") as path:
        yield Path(path)


@pytest.fixture
def terminal(folder):
    """`terminal(*words)` starts `core *words` on a terminal; what it leaves behind is below `folder`."""
    started = []

    def terminal(*words, program=(CORE,), **options):
        own = {"TERM": "xterm-256color", "XDG_STATE_HOME": str(folder / "state"), "TMPDIR": str(folder)}
        started.append(Terminal([*program, *words], {**plain_env(), **own}, **options))
        return started[-1]

    yield terminal
    for one in started:
        one.end()
