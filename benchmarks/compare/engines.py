"""How every engine is run: the runner of its offline cases, and its server."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.compare.cases import Variant
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


def offline_command(variant: Variant, env: Environment, model: Path, repeats: int, threads: int) -> list[str]:
    """Return the command that times the offline cases."""
    spec = variant.spec(str(model), repeats, threads)
    if variant.engine == "llama":
        spec["flags"] = [str(env.programs / "llama-batched-bench")]
    return [env.python, str(RUNNERS / f"run_{variant.engine}.py"), json.dumps(spec)]


def server(variant: Variant, env: Environment, model: Path, threads: int) -> ServerPlan:
    """Return the server of an engine that has one."""
    port = _free_port()
    base = f"http://127.0.0.1:{port}"
    where = ["--host", "127.0.0.1", "--port", str(port)]
    programs, given = env.programs, str(model)
    body: dict[str, object] = {}
    if variant.engine == "core":
        command = [str(programs / "core"), "serve", "--model", given, "--dtype", variant.dtype, *variant.flags]
        command += ["--threads", str(threads), "--no-prefix-caching", "--max-model-len", "2048", "--kv-memory", "1GiB"]
        return ServerPlan([*command, *where], base, f"{base}/ready", env.environ, body)
    if variant.engine == "vllm":
        # The `vllm` command looks for a distribution of that name, which the one for CPUs is not.
        command = [env.python, "-m", "vllm.entrypoints.openai.api_server", "--model", given, "--dtype", variant.dtype]
        command += ["--max-model-len", "2048"]
        command += ["--max-num-seqs", "64", "--no-enable-prefix-caching", "--distributed-executor-backend", "uni"]
        return ServerPlan([*command, *where], base, f"{base}/health", env.environ, body)
    command = [
        str(programs / "llama-server"),
        "-m",
        given,
        "-t",
        str(threads),
        "-np",
        "32",
        "-c",
        "16384",
        "-b",
        "2048",
    ]
    return ServerPlan([*command, *where], base, f"{base}/health", env.environ, {"cache_prompt": False})


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
