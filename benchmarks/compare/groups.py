"""The measurements of one variant: each returns what is kept of it."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.compare import engines, process
from benchmarks.compare.cases import CASES, CONCURRENCIES, RATES, SERVER_LENGTH, SERVER_REQUESTS, Case, Variant
from benchmarks.compare.engines import Given, ServerPlan
from benchmarks.compare.environments import Environment
from benchmarks.compare.isa import CAPS
from benchmarks.compare.process import MeasurementError, PeakMemory
from benchmarks.compare.shapes import SHAPES, stored

_KEPT = ("output_throughput", "request_throughput", "completed", "failed", "client_cpu_share")
_AT_ONCE = 3
_SERVER = (Case("server", "", max(CONCURRENCIES), SERVER_LENGTH, SERVER_LENGTH),)
_SERVER_KV = 1024
"""MiB of a server's cache at least."""
_COMMANDS = (("--help",), ("--version",), ("plugins", "list"))


@dataclass(frozen=True)
class Setting:
    """What all measurements of a variant share.

    Attributes:
        gate: Words in front of every timed command, for machines where others must be held back.
    """

    variant: Variant
    env: Environment
    model: Path
    threads: int
    repeats: int
    gate: tuple[str, ...] = ()

    @property
    def timeout(self) -> float:
        """Seconds that a measurement may take: large models and the time that a gate may hold it back."""
        seconds = 7200.0 if self.variant.shape else 900.0
        return max(seconds, 3600.0) if self.gate else seconds

    def given(self, cases: tuple[Case, ...], kv_mib: int = 0) -> Given:
        """Return what the engine is given, with a cache that holds the cases of a shape and an eighth more."""
        least = max(kv_mib, self.variant.kv_mib)
        if self.variant.shape:
            least = max(least, math.ceil(stored.room_mib(SHAPES[self.variant.shape], cases) * 9 / 8))
        return Given(self.model, self.threads, least)


def measure(setting: Setting, group: str) -> dict[str, Any]:
    """Run one group and return its figures."""
    if group in CASES:
        return _offline(setting, CASES[group])
    if group == "startup":
        return _startup(setting)
    if group == "server":
        closed = ["--num-prompts", str(SERVER_REQUESTS), "--max-concurrency"]
        return _served(setting, {f"c{count}": [*closed, str(count)] for count in CONCURRENCIES})
    if group == "rates":
        return _served(setting, _rates())
    return _overhead(setting) if group == "overhead" else _engine(setting)


def _offline(setting: Setting, cases: tuple[Case, ...]) -> dict[str, Any]:
    about = _about(setting, cases) if setting.variant.shape else {}
    given = setting.given(cases)
    command = engines.offline_command(setting.variant, setting.env, given, cases, setting.repeats)
    measured = process.measure([*setting.gate, *command], setting.env.environ, setting.timeout)
    seconds = measured.result["seconds"]
    rates = {case.name: [case.tokens / each for each in seconds[case.name]] for case in cases}
    ready = [measured.result["ready_s"]] if "ready_s" in measured.result else []
    others = measured.result["others"]
    return {"tokens_per_s": rates, "ready_s": ready, "peak_mib": measured.peak_mib, "others": others, **about}


def _about(setting: Setting, cases: tuple[Case, ...]) -> dict[str, Any]:
    """Return what the machine gives just now, and what the cases ask of it."""
    shape = SHAPES[setting.variant.shape]
    spec = json.dumps({"threads": setting.threads})
    command = [*setting.gate, sys.executable, str(engines.RUNNERS / "run_machine.py"), spec]
    # Those of the environment may preload libraries; a bound holds for the machine as well.
    isa = setting.variant.isa
    machine = process.measure(command, CAPS[isa].environ if isa else {}, setting.timeout).result
    return {"machine": machine, "work": stored.work(shape, setting.model, cases)}


def _startup(setting: Setting) -> dict[str, Any]:
    plan = engines.server(setting.variant, setting.env, setting.given(_SERVER, _SERVER_KV))
    repeats = 1 if setting.variant.engine == "vllm" else setting.repeats
    _read(setting.model)
    spec = {"command": plan.command, "url": plan.ready, "repeats": repeats}
    command = [sys.executable, str(engines.RUNNERS / "run_startup.py"), json.dumps(spec)]
    measured = process.measure([*setting.gate, *command], plan.environ, setting.timeout)
    return measured.result


def _read(model: Path) -> None:
    """Read the files of a model, so that the page cache has them."""
    for file in model.glob("*") if model.is_dir() else (model,):
        with file.open("rb", buffering=0) as stream:
            while stream.read(1 << 24):
                pass


def _engine(setting: Setting) -> dict[str, Any]:
    spec = {"model": str(setting.model), "threads": setting.threads, "repeats": setting.repeats}
    command = [setting.env.python, str(engines.RUNNERS / "run_engine.py"), json.dumps(spec)]
    result = process.measure([*setting.gate, *command], setting.env.environ, setting.timeout).result
    return {**result, "commands": _commands(setting)}


def _overhead(setting: Setting) -> dict[str, Any]:
    command = [*setting.gate, setting.env.python, str(engines.RUNNERS / "run_overhead.py")]
    return process.measure(command, setting.env.environ, setting.timeout).result


def _commands(setting: Setting) -> dict[str, float]:
    """Return the least seconds of commands that load no model."""
    found = {}
    for words in _COMMANDS:
        command = [*setting.gate, str(setting.env.programs / "core"), *words]
        seconds = []
        for _ in range(max(3, setting.repeats)):
            begin = time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            seconds.append(time.perf_counter() - begin)
        found[f"core {' '.join(words)}"] = min(seconds)
    return found


def _served(setting: Setting, loads: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    plan = engines.server(setting.variant, setting.env, setting.given(_SERVER, _SERVER_KV))
    found: dict[str, Any] = {}
    with _running(plan, setting.timeout) as (session, peak):
        # What the largest load needs for the first time, pages of memory above all, belongs to the start.
        _send(replace(setting, gate=()), plan, session, {"warm": ["--num-prompts", str(SERVER_REQUESTS)]})
        names = list(loads)
        # A gate opens for a minute or two.
        for start in range(0, len(names), _AT_ONCE):
            part = _send(setting, plan, session, {name: loads[name] for name in names[start : start + _AT_ONCE]})
            found |= {**part, "others": max(part["others"], found.get("others", 0.0))}
        return {**found, "peak_mib": peak.mib}


def _rates() -> dict[str, list[str]]:
    """Return open loops that are watched for about ten seconds, whatever their rate."""
    return {
        f"r{rate:g}": ["--request-rate", f"{rate:g}", "--num-prompts", str(max(8, round(10 * rate)))] for rate in RATES
    }


@contextmanager
def _running(plan: ServerPlan, timeout: float) -> Iterator[tuple[int, PeakMemory]]:
    with tempfile.TemporaryFile("w+") as log:
        server = subprocess.Popen(
            plan.command,
            env={**os.environ, **plan.environ},
            stdout=log,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            deadline = time.monotonic() + timeout
            while not _answers(plan.ready):
                if server.poll() is not None or time.monotonic() > deadline:
                    log.seek(0)
                    raise MeasurementError(f"the server did not get ready: {process.last_words(log.read())}")
                time.sleep(0.05)
            with PeakMemory(server.pid) as peak:
                yield server.pid, peak
        finally:
            process.end(server)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def _send(setting: Setting, plan: ServerPlan, session: int, loads: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    command = [str(Path(sys.executable).parent / "core"), "bench", "serve", "--base-url", plan.base]
    command += ["--random-input-len", str(SERVER_LENGTH), "--random-output-len", str(SERVER_LENGTH)]
    command += ["--ignore-eos", "--extra-body", json.dumps(plan.body), "--seed", str(time.monotonic_ns() % 10**6)]
    spec = json.dumps({"command": command, "loads": loads, "session": session})
    runner = [sys.executable, str(engines.RUNNERS / "run_loads.py"), spec]
    result = process.measure([*setting.gate, *runner], {}, setting.timeout).result
    return {**{name: _kept(one) for name, one in result["results"].items()}, "others": result["others"]}


def _kept(result: Mapping[str, Any]) -> dict[str, float]:
    latencies = {key: value for key, value in result.items() if key.endswith("_ms") and key[:3] in ("med", "p99")}
    return {**{key: result[key] for key in _KEPT}, **latencies}
