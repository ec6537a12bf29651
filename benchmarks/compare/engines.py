"""How every engine is run: the runner of its offline cases, and its server."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.compare.cases import Case, Variant
from benchmarks.compare.environments import Environment

RUNNERS = Path(__file__).parent / "runners"


@dataclass(frozen=True)
class ServerPlan:
    """A server to start.

    Attributes:
        ready: Address that answers 200 once it is ready.
        body: Fields of every request, as they switch the reuse of prompts off.
    """

    command: list[str]
    base: str
    ready: str
    environ: Mapping[str, str]
    body: Mapping[str, object]


@dataclass(frozen=True)
class Given:
    """What an engine is given beside its variant: the files of the model, threads, and MiB of KV cache."""

    model: Path
    threads: int
    kv_mib: int


def offline_command(
    variant: Variant, env: Environment, given: Given, cases: tuple[Case, ...], repeats: int
) -> list[str]:
    """Return the command that times cases."""
    spec = variant.spec(str(given.model), cases, repeats, given.threads, given.kv_mib)
    if variant.engine == "llama":
        spec["flags"] = [str(env.programs / "llama-batched-bench")]
    return [*_python(variant, env), str(RUNNERS / f"run_{variant.engine}.py"), json.dumps(spec)]


def server(variant: Variant, env: Environment, given: Given) -> ServerPlan:
    """Return the server of an engine that has one."""
    port = _free_port()
    base = f"http://127.0.0.1:{port}"
    command, ready, body = _SERVERS[variant.engine](variant, env, given)
    command += ["--host", "127.0.0.1", "--port", str(port)]
    return ServerPlan(command, base, f"{base}/{ready}", env.environ, body)


_Served = tuple[list[str], str, dict[str, object]]
"""Command, path that answers when it is ready, fields of every request."""


def _core(variant: Variant, env: Environment, given: Given) -> _Served:
    command = [str(env.programs / "core"), "serve", "--model", str(given.model), "--dtype", variant.dtype]
    command += [*variant.flags, "--threads", str(given.threads), "--no-prefix-caching", "--max-model-len", "2048"]
    return [*command, "--kv-memory", f"{given.kv_mib}MiB"], "ready", {}


def _vllm(variant: Variant, env: Environment, given: Given) -> _Served:
    # The `vllm` command looks for a distribution of that name, which the one for CPUs is not.
    command = [*_python(variant, env), "-m", "vllm.entrypoints.openai.api_server", "--model", str(given.model)]
    command += ["--dtype", variant.dtype, "--max-model-len", "2048", "--max-num-seqs", "64"]
    command += ["--no-enable-prefix-caching", "--distributed-executor-backend", "uni"]
    return [*command, "--kv-cache-memory-bytes", str(given.kv_mib << 20)], "health", {}


def _llama(variant: Variant, env: Environment, given: Given) -> _Served:
    command = [str(env.programs / "llama-server"), "-m", str(given.model), "-t", str(given.threads)]
    return [*command, "-np", "32", "-c", "16384", "-b", "2048"], "health", {"cache_prompt": False}


_SERVERS = {"core": _core, "vllm": _vllm, "llama": _llama}


def _python(variant: Variant, env: Environment) -> list[str]:
    """Return the interpreter; vLLM asks torch for instruction sets, which does not heed variables."""
    capped = [str(RUNNERS / "run_capped.py"), variant.isa]
    return [env.python, *(capped if variant.isa and variant.engine == "vllm" else [])]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
