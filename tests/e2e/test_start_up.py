"""How a server starts: what it loads where, what its threads do, and how it fails."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from core_testing.tinymodels import tiny_llama

FLAGS = ("--dtype", "float32", "--num-blocks", "400", "--served-model-name", "tiny")


def _busy(process: psutil.Process, before: dict[int, float], seconds: float) -> int:
    """Count the threads that computed for at least a tenth of `seconds`."""
    now = {thread.id: thread.user_time + thread.system_time for thread in process.threads()}
    return sum(spent - before.get(thread, 0.0) > seconds / 10 for thread, spent in now.items())


def _maps(process: psutil.Process) -> str:
    with open(f"/proc/{process.pid}/maps") as file:
        return file.read()


def test_the_api_process_has_no_torch_and_the_engine_has(tiny_server):
    api, engine = psutil.Process(tiny_server.process.pid), tiny_server.engine()
    assert "libtorch" not in _maps(api)
    assert "libtorch" in _maps(engine)


def test_an_idle_server_does_nothing(tiny_server):
    family = tiny_server.family()

    def spent():
        return sum(sum(process.cpu_times()[:2]) for process in family)

    before = spent()
    time.sleep(3)
    assert spent() - before < 0.01 * 3 + 0.02  # the clock has ticks of a hundredth


def test_as_many_threads_compute_as_were_asked_for(tiny_server):
    engine = tiny_server.engine()
    before = {thread.id: thread.user_time + thread.system_time for thread in engine.threads()}
    began = time.monotonic()
    body = {"model": "tiny", "prompt": [5, 6, 7], "max_tokens": 400, "ignore_eos": True, "temperature": 0}
    with tiny_server.http() as http, ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: http.post("/v1/completions", json=body), range(8)))
    assert {answer.status_code for answer in answers} == {200}
    # One computes; scheduling and sending are the engine's main thread and its sender.
    assert _busy(engine, before, time.monotonic() - began) <= 1 + 2


def test_a_tokenizer_that_cannot_be_used_ends_the_start_before_weights_are_read(core, tmp_path):
    checkpoint = tiny_llama(tmp_path / "broken")
    (checkpoint / "tokenizer.json").write_text("{}")
    done = core("serve", str(checkpoint), "--port", "0", *FLAGS)
    assert done.returncode == 1
    (line,) = [line for line in done.stderr.splitlines() if line.strip()]
    assert "CORE-M111" in line and "tokenizer.json" in line
    assert "loading weights" not in done.stdout + done.stderr


def _engines(pids, model) -> list[psutil.Process]:
    """Return the engine processes among `pids` whose parent is gone or serves `model`."""
    found = []
    for pid in pids:
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            parent = process.parent()
            if "core.engine.process" in process.cmdline() and (parent is None or model in parent.cmdline()):
                found.append(process)
    return found


@pytest.mark.parametrize(
    ("flags", "code"), [(("--threads-bind", "4000"), "CORE-C115"), (("--attention-backend", "nobody"), "CORE-P")]
)
def test_a_start_that_fails_is_one_line_and_leaves_no_process(core, tiny, flags, code):
    before = set(psutil.pids())
    done = core("serve", str(tiny), "--port", "0", *FLAGS, *flags)
    assert done.returncode != 0
    assert code in done.stderr.strip().splitlines()[-1]
    assert "Traceback" not in done.stderr
    assert not _engines(set(psutil.pids()) - before, str(tiny))


@pytest.mark.covers("ENG-06")
def test_three_servers_start_at_once(launch, tiny):
    servers = [launch(str(tiny), "--threads", "1", *FLAGS) for _ in range(3)]
    urls = {server.wait_ready().url for server in servers}
    assert len(urls) == 3
    for server in servers:
        server.end()


def test_an_engine_loads_neither_a_compiler_nor_what_belongs_to_servers(tiny):
    code = (
        "import json, sys; from core import LLM, SamplingParams\n"
        f"with LLM({str(tiny)!r}, dtype='float32', num_blocks=40, threads=1) as llm:\n"
        "    llm.generate(['a'], SamplingParams(max_tokens=4, ignore_eos=True))\n"
        "unwanted = ('torch._dynamo', 'torch._inductor', 'sympy', 'numpy.random', 'transformers', 'fastapi',\n"
        "            'uvicorn', 'httpx', 'rich.progress', 'core.server', 'core.cli.serve')\n"
        "print(json.dumps([name for name in unwanted if name in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(done.stdout.splitlines()[-1]) == []


def test_the_profile_names_the_phases_and_the_memory_of_both_processes(core, tiny):
    done = core("bench", "startup", "--profile", "--model", str(tiny), "--threads", "1", *FLAGS)
    assert done.returncode == 0, done.stderr
    for words in ("engine   worker imports", "core     tokenizer", "engine   weights", "sum  "):
        assert words in done.stdout
