"""core's own goals: scaling with requests and prompt length, shared prefixes, and the scheduler's share of a step."""

from __future__ import annotations

import json
import random
import statistics
import subprocess
import sys
import time
from typing import Any

from common import FIRST_TOKEN, TOKENS, read_spec, report

_LENGTH = 64
_PREFIX, _OWN, _SHARERS = 2000, 16, 64


def ids(count: int, source: random.Random) -> list[int]:
    """Return random tokens."""
    return [source.randrange(FIRST_TOKEN, TOKENS) for _ in range(count)]


def run(llm: Any, prompts: list[list[int]], output_len: int) -> tuple[float, list[Any]]:
    """Return the seconds and the outputs of one run."""
    from core import SamplingParams

    params = SamplingParams(temperature=0.0, ignore_eos=True, max_tokens=output_len, detokenize=False)
    begin = time.perf_counter()
    outputs = llm.generate([{"prompt_token_ids": prompt} for prompt in prompts], params)
    return time.perf_counter() - begin, outputs


def scaling(llm: Any, source: random.Random) -> dict[str, float]:
    """Return output tokens per second by the number of requests that come at once."""
    found = {}
    run(llm, [ids(_LENGTH, source) for _ in range(4)], 4)
    for count in (32, 64, 128, 256):
        seconds, _ = run(llm, [ids(_LENGTH, source) for _ in range(count)], _LENGTH)
        found[str(count)] = count * _LENGTH / seconds
    return found


def prefill(llm: Any, source: random.Random, repeats: int) -> dict[str, float]:
    """Return prompt tokens per second by the length of one prompt."""
    found = {}
    for length in (512, 1024, 2048, 4096):
        seconds = [run(llm, [ids(length, source)], 1)[0] for _ in range(repeats + 1)]
        found[str(length)] = length / statistics.median(seconds[1:])
    return found


def prefix(llm: Any, source: random.Random, repeats: int) -> dict[str, float]:
    """Return what a shared prefix costs: tokens computed, and the time to first token of a miss and of a hit."""
    misses, hits = [], []
    for _ in range(repeats):
        shared = ids(_PREFIX, source)
        misses.append(run(llm, [shared + ids(_OWN, source)], 1)[0])
        hits.append(run(llm, [shared + ids(_OWN, source)], 1)[0])
    shared = ids(_PREFIX, source)
    seconds, outputs = run(llm, [shared + ids(_OWN, source) for _ in range(_SHARERS)], 1)
    asked = sum(len(output.prompt_token_ids) for output in outputs)
    return {
        "requests": _SHARERS,
        "prompt_tokens": asked,
        "computed_tokens": asked - sum(output.num_cached_tokens for output in outputs),
        "seconds": seconds,
        "ttft_miss_ms": statistics.median(misses) * 1e3,
        "ttft_hit_ms": statistics.median(hits) * 1e3,
    }


def part(name: str, spec: dict[str, Any]) -> dict[str, float]:
    """Run one part with an engine of its own."""
    from core import LLM

    caching = name == "prefix"
    options = {"max_model_len": 8192, "prefix_caching": caching, "threads": spec["threads"], "kv_memory": "2GiB"}
    source = random.Random(1)
    with LLM(spec["model"], dtype="bfloat16", **options) as llm:
        if name == "scaling":
            return scaling(llm, source)
        run(llm, [ids(64, source)], 4)
        return (prefix if caching else prefill)(llm, source, spec["repeats"])


def main() -> None:
    """Run every part in a process of its own; the memory of one must not be the cache of the next."""
    spec = read_spec()
    if "part" in spec:
        report(**part(spec["part"], spec))
        return
    found = {}
    for name in ("scaling", "prefill", "prefix"):
        command = [sys.executable, __file__, json.dumps({**spec, "part": name})]
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        line = next(line for line in output.splitlines() if line.startswith("RESULT "))
        found[name] = json.loads(line.removeprefix("RESULT "))
        del found[name]["others"]  # it would count this process, which only waits, and is told of the whole anyway
    report(**found)


if __name__ == "__main__":
    main()
