"""core, by its own command: one process per case."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from common import read_spec, report, time_held


def time_case(spec: dict[str, Any], case: dict[str, Any]) -> list[float]:
    """Return the seconds of every repeat of `core bench latency`."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "result.json"
        command = [str(Path(sys.executable).parent / "core"), "bench", "latency", "--model", spec["model"]]
        command += ["--dtype", spec["dtype"], "--threads", str(spec["threads"]), *spec["flags"]]
        command += ["--no-prefix-caching", "--max-model-len", str(spec["max_len"])]
        command += ["--kv-memory", f"{spec['kv_mib']}MiB", "--batch-size", str(case["batch"])]
        command += ["--input-len", str(case["input_len"]), "--output-len", str(case["output_len"])]
        command += ["--num-iters", "1", "--warmup", "0"] if case["once"] else _repeats(spec)
        command += ["--disable-detokenize", "--output-json", str(out)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        seconds: list[float] = json.loads(out.read_text())["latencies"]
        return seconds


def _repeats(spec: dict[str, Any]) -> list[str]:
    return ["--num-iters", str(spec["repeats"]), "--warmup", "1"]


def time_context(spec: dict[str, Any], case: dict[str, Any]) -> list[float]:
    """Return the seconds of the tokens behind a prompt that the prefix cache holds, in a process of its own."""
    command = [sys.executable, __file__, json.dumps({**spec, "held": case})]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    line = next(line for line in output.splitlines() if line.startswith("RESULT "))
    seconds: list[float] = json.loads(line.removeprefix("RESULT "))["seconds"]
    return seconds


def held(spec: dict[str, Any]) -> None:
    """Time one case with a prompt in the prefix cache."""
    from core import LLM, SamplingParams

    options = {"max_model_len": spec["max_len"], "threads": spec["threads"], "kv_memory": f"{spec['kv_mib']}MiB"}
    with LLM(spec["model"], dtype=spec["dtype"], prefix_caching=True, **options) as llm:

        def generate(prompts: list[list[int]], output_len: int) -> int:
            params = SamplingParams(temperature=0.0, ignore_eos=True, max_tokens=output_len, detokenize=False)
            outputs = llm.generate([{"prompt_token_ids": ids} for ids in prompts], params)
            return sum(len(output.outputs[0].token_ids) for output in outputs)

        report(seconds=time_held(spec, spec["held"], generate))


def main() -> None:
    """Time all cases."""
    spec = read_spec()
    if "held" in spec:
        held(spec)
        return
    report(seconds={case["name"]: (time_context if case["held"] else time_case)(spec, case) for case in spec["cases"]})


if __name__ == "__main__":
    main()
