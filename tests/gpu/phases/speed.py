"""Random weights of real sizes: decode, 256 requests at once, prompts of 8k tokens, host time of a step, the start.

Targets on one card: decode at 85 % of the memory's rate; 256 at once, and prompts of 8k, at 70 % of the larger limit;
at most 50 us of host time a step that the device waits for, at depth 1; a start with 12 graphs in 20 s.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

from record import SHAPES, Record, parameters, write_model

TARGETS = {"decode": 0.85, "many": 0.70, "prompts": 0.70, "exposed": 50.0, "start": 20.0}


def main() -> None:
    """Run the phase."""
    record = Record()
    from core.testing.tinymodels import tiny_tokenizer

    limits = _limits()
    for shape in ("small",) if record.small else ("1B", "8B"):
        with record.part(shape), tempfile.TemporaryDirectory() as folder:
            _measure(record, shape, str(write_model(Path(folder), shape, tiny_tokenizer)), limits)


def _limits() -> dict[str, float]:
    """Return what the first phase measured of the device."""
    file = Path(sys.argv[2]).with_name("start.json")
    figures = json.loads(file.read_text())["figures"] if file.is_file() else {}
    return {"bytes": figures.get("memory, GB/s", 0.0) * 1e9, "flops": figures.get("products, TFLOP/s", 0.0) * 1e12}


def _measure(record: Record, shape: str, model: str, limits: dict[str, float]) -> None:
    from core import LLM

    sizes = {"rows": 4, "long": 64, "out": 8} if record.small else {"rows": 256, "long": 8192, "out": 128}
    began = time.perf_counter()
    options = {"max_num_seqs": sizes["rows"], "max_model_len": sizes["long"] + 2 * sizes["out"]}
    with LLM(model, **record.options, **options) as llm:
        seconds = time.perf_counter() - began
        record.note(f"{shape}, start, s (target {TARGETS['start']:g})", seconds)
        record.note(f"{shape}, start by phase, s", {name: round(took, 3) for name, took in llm._engine.ready.timeline})
        record.note(f"{shape}, graphs", llm._engine.ready.facts.get("graphs", ""))
        weights = parameters(shape)
        rate = _rate(llm, 1, 16, sizes["out"])
        record.note(f"{shape}, one stream, tokens/s", rate)
        if limits["bytes"]:
            record.note(
                f"{shape}, one stream, share of bandwidth (target {TARGETS['decode']})",
                rate * 2 * weights / limits["bytes"],
            )
        llm.call("profile", True)
        rate = _rate(llm, sizes["rows"], 16, sizes["out"])
        profile = llm.call("profile", False)
        record.note(f"{shape}, {sizes['rows']} streams, tokens/s", rate)
        record.note(f"{shape}, phases of a step, us", profile)
        if limits["flops"]:
            most = max(2 * weights * rate / limits["flops"], rate / sizes["rows"] * 2 * weights / limits["bytes"])
            record.note(f"{shape}, {sizes['rows']} streams, share of the larger limit (target {TARGETS['many']})", most)
        began = time.perf_counter()
        _run(llm, 2, sizes["long"], 1)
        rate = 2 * sizes["long"] / (time.perf_counter() - began)
        record.note(f"{shape}, prompts of {sizes['long']}, tokens/s", rate)
        if limits["flops"]:
            record.note(
                f"{shape}, prompts, share of products (target {TARGETS['prompts']})",
                2 * weights * rate / limits["flops"],
            )
    record.note(f"{shape}, values of a token", SHAPES[shape]["hidden_size"])


def _rate(llm, rows: int, prompt: int, out: int) -> float:
    """Return tokens a second of so many streams, the prompts' time taken off."""
    _run(llm, rows, prompt, 2)
    began = time.perf_counter()
    _run(llm, rows, prompt, 1)
    first = time.perf_counter()
    _run(llm, rows, prompt, 1 + out)
    return rows * out / max(1e-9, (time.perf_counter() - first) - (first - began))


def _run(llm, rows: int, prompt: int, out: int) -> None:
    from core import SamplingParams

    params = SamplingParams(temperature=0.0, max_tokens=out, ignore_eos=True)
    prompts = [{"prompt_token_ids": [3 + (i * 31 + row * 17) % 90 for i in range(prompt)]} for row in range(rows)]
    llm.generate(prompts, params)


if __name__ == "__main__":
    main()
