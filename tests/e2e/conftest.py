"""Prompts, and real `core` processes, for end-to-end tests."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

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
START_SECONDS = 90
STOP_SECONDS = 20


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
        while (found := re.search(r"^ready: \S+ at (https?://\S+)$", self.stdout, re.MULTILINE)) is None:
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
        """The samples of /metrics that have no labels."""
        with self.http() as http:
            lines = http.get("/metrics").text.splitlines()
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
    from core.testing.tinymodels import tiny_llama

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
