"""What a long prompt costs those who are being answered: gaps of 8 streams beside a prompt of 7,000 tokens.

    python benchmarks/long_prompt.py [--rounds 5] [--max-itl-ms 0 200] [--threads N] [--json FILE]

One `core serve` per value of `--max-itl-ms`, all at once, since an idle one costs nothing. They are measured in turn:
eight requests stream, then the prompt arrives, with and without `prompt_logprobs`, and every arrival is noted. Medians
over the rounds of: the largest gap of any stream while the prompt is computed, the 99th percentile of the gaps, the
prompt's time to first token, and the ordinary gap just before.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import httpx
import numpy as np

CORE = Path(sys.executable).with_name("core")
SETTLED = 20
"""Tokens that every stream has before the prompt arrives."""


class Server:
    """A `core serve` on a free port; ended with the context."""

    def __init__(self, model: str, itl: float, flags: list[str]) -> None:
        command = [str(CORE), "serve", model, "--host", "127.0.0.1", "--port", "0", "--max-itl-ms", f"{itl:g}", *flags]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.url = ""

    def __enter__(self) -> Server:
        assert self.process.stdout is not None
        seen = []
        for line in self.process.stdout:
            seen.append(line)
            found = re.search(r"http://127\.0\.0\.1:\d+", line)
            if found and "ready" in line.lower():
                self.url = found[0]
                return self
        raise RuntimeError("the server has ended:\n" + "".join(seen))

    def __exit__(self, *exc: object) -> None:
        self.process.terminate()
        self.process.wait(60)


async def _stream(client: httpx.AsyncClient, body: dict[str, Any], times: list[float]) -> None:
    """Note when each event of an answer arrives."""
    async with client.stream("POST", "/v1/completions", json={**body, "stream": True, "ignore_eos": True}) as answer:
        if answer.status_code != 200:
            raise RuntimeError((await answer.aread()).decode())
        async for line in answer.aiter_lines():
            if line.startswith("data: {"):
                times.append(time.perf_counter())


async def one_round(
    url: str, arguments: argparse.Namespace, rng: np.random.Generator, *, scored: bool
) -> dict[str, float]:
    """Return the figures of one prompt beside the streams, in milliseconds."""

    def prompt(length: int) -> list[int]:
        return [int(token) for token in rng.integers(1000, 20000, length)]

    streams: list[list[float]] = [[] for _ in range(arguments.streams)]
    async with httpx.AsyncClient(base_url=url, timeout=600, limits=httpx.Limits(max_connections=None)) as client:
        body = {"max_tokens": arguments.prompt, "temperature": 0}
        tasks = [asyncio.create_task(_stream(client, {**body, "prompt": prompt(16)}, times)) for times in streams]
        while min(map(len, streams)) < SETTLED:
            await asyncio.sleep(0.02)
        long = {"prompt": prompt(arguments.prompt), "max_tokens": 1, "temperature": 0}
        began = time.perf_counter()
        # Log-probabilities of a prompt are not streamed, so both kinds wait for a whole answer of one token.
        answer = await client.post("/v1/completions", json={**long, **({"prompt_logprobs": 1} if scored else {})})
        ended = time.perf_counter()
        answer.raise_for_status()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    gaps = [gap for times in streams for gap in _gaps(times, began, ended)]
    before = [b - a for times in streams for a, b in pairwise(times[SETTLED // 2 : SETTLED])]
    return {
        "largest": max(gaps) * 1e3,
        "p99": float(np.percentile(gaps, 99)) * 1e3,
        "ttft": (ended - began) * 1e3,
        "before": statistics.median(before) * 1e3,
    }


def _gaps(times: list[float], begin: float, end: float) -> list[float]:
    """Return the gaps that lie in a span of time, at least in part; the last may not have ended."""
    return [b - a for a, b in pairwise([*times, max(end, times[-1])]) if b > begin and a < end]


def main() -> None:
    """Measure, print a table, and write JSON if asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--max-itl-ms", type=float, nargs="+", default=[0, 200])
    parser.add_argument("--prompt", type=int, default=7000, help="Tokens of the long prompt.")
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    flags = ["--dtype", "bfloat16", "--max-model-len", "8192", "--num-blocks", "1200"]
    flags += ["--threads", str(arguments.threads)] if arguments.threads else []
    rng = np.random.default_rng(0)
    found: dict[tuple[float, bool], list[dict[str, float]]] = {}
    with ExitStack() as held:
        servers = {itl: held.enter_context(Server(arguments.model, itl, flags)) for itl in arguments.max_itl_ms}
        for _ in range(arguments.rounds):
            for scored, (itl, server) in product((False, True), servers.items()):
                one = asyncio.run(one_round(server.url, arguments, rng, scored=scored))
                found.setdefault((itl, scored), []).append(one)
                figures = ", ".join(f"{name} {value:.0f}" for name, value in one.items())
                print(f"--max-itl-ms {itl:g}{', logprobs' if scored else ''}: {figures} ms", file=sys.stderr)
    print(f"{'--max-itl-ms':>12} {'logprobs':>9} {'before':>8} {'largest':>9} {'p99':>8} {'ttft':>8}   ms, medians")
    report = []
    for (itl, scored), rounds in sorted(found.items(), key=lambda item: (item[0][1], item[0][0])):
        middle = {name: statistics.median(one[name] for one in rounds) for name in rounds[0]}
        report.append({"max_itl_ms": itl, "prompt_logprobs": scored, **middle, "rounds": rounds})
        cells = [middle[name] for name in ("before", "largest", "p99", "ttft")]
        print(f"{itl:>12g} {'yes' if scored else 'no':>9} " + " ".join(f"{cell:>8.0f}" for cell in cells))
    if arguments.json:
        arguments.json.write_text(json.dumps({"long_prompt": report}, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
