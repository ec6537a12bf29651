"""Where the time of a step goes on the CPU: the native calls of a prompt and of decode steps, by kind and shape.

    python benchmarks/cpu_steps.py MODEL [--rows 1 32] [--prompt 1024] [--quantization int8]

Forward passes run as the programs that they are, with the time of each call taken; the median of the repeats is shown.
What is outside of the forward pass comes from the engine's own profile.
"""

from __future__ import annotations

import argparse
import random
from collections import defaultdict
from typing import Any
from unittest import mock

import numpy as np
from core_plugin_cpu import graphs, platform
from core_plugin_cpu.native.asked import ASKED
from core_plugin_cpu.native.gemm import GEMM, GEMM_GATED, Format
from core_plugin_cpu.native.program import Program
from core_plugin_cpu.native.record import record
from core_plugin_cpu.native.torchcalls import Turn

from core import LLM, SamplingParams


class Timed(Program):
    """A program whose runs are timed."""

    def __init__(self, program: Program) -> None:
        self.__dict__.update(program.__dict__)
        self.runs: list[np.ndarray] = []

    def run(self, given: Turn | None = None) -> int:
        """Run, and keep the times."""
        self.runs.append(self.time())
        return 0


class TimedGraphs(graphs.ProgramGraphs):
    """Records steps of every shape, as they come.

    Attributes:
        found: Shape -> the program.
    """

    found: dict[tuple[int, int], Timed] = {}  # noqa: RUF012

    def key(self, shape: Any) -> Any:
        """Return tokens and queries per row."""
        return (shape.num_tokens, shape.max_query_len)

    def capture(self, forward: Any, step: Any) -> Any:
        """Record the forward pass over the step itself."""
        program, out = record(lambda: forward(step), step, run=False)
        timed = self.found[len(step.token_ids), step.batch.max_query_len] = Timed(program)
        return graphs.ProgramGraph(timed, out)


def table(program: Timed) -> list[tuple[str, int, float, float]]:
    """Return `(what, calls, microseconds, multiply-adds)` by kind of call, from the median of each call."""
    # The first third warms up.
    times = np.median(np.stack(program.runs[len(program.runs) // 3 :]), axis=0)
    found: dict[str, list[float]] = defaultdict(lambda: [0, 0.0, 0.0])
    for index, entry in enumerate(program.entries):
        name, work = entry.name, 0
        if entry in (GEMM, GEMM_GATED):
            m, n, k, kind = (program.argument(index, field) for field in ("m", "n", "k", "format"))
            name, work = f"{name} {Format(kind & ~ASKED).name} {n} x {k}", m * n * k
        elif "residual" in entry.fields:
            name += " + residual" if program.argument(index, "residual") else ""
        elif "slots" in entry.fields:
            name += " store" if program.argument(index, "slots") else " rotate"
        row = found[name]
        row[0], row[1], row[2] = row[0] + 1, row[1] + times[index] / 1e3, row[2] + work
    return [(name, int(count), spent, work) for name, (count, spent, work) in found.items()]


def show(program: Timed) -> None:
    """Print the table."""
    rows = table(program)
    total = sum(spent for _, _, spent, _ in rows)
    for name, count, spent, work in sorted(rows, key=lambda row: -row[2]):
        rate = f"{2 * work / spent / 1e6:8.2f} TOP/s" if work else ""
        print(f"  {name:28} {count:4} {spent / 1e3:9.3f} ms {spent / total:6.1%} {spent / count:9.1f} us {rate}")
    print(f"  {'all':28} {program.count:4} {total / 1e3:9.3f} ms")


def main() -> None:
    """Run the steps and print their tables."""
    from core_plugin_bench.profile import show_profile, summary

    from core.cli.host import Host

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--rows", nargs="*", type=int, default=[1, 32])
    parser.add_argument("--prompt", type=int, default=1024, help="tokens of the prompt; 0: none")
    parser.add_argument("--context", type=int, default=128, help="tokens before the decode steps")
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--kv-memory", default="256MiB")
    parser.add_argument("--kv-dtype", default="auto")
    parser.add_argument("--quantization")
    args = parser.parse_args()
    longest = max(2048, args.prompt + 1, args.context + args.steps)
    options = {"dtype": "bfloat16", "prefix_caching": False, "max_model_len": longest}
    options |= {"kv_memory": args.kv_memory, "kv_dtype": args.kv_dtype}
    if args.quantization:
        options["quantization"] = args.quantization
    with mock.patch.object(platform, "ProgramGraphs", TimedGraphs), LLM(args.model, **options) as llm:
        source, phases = random.Random(0), Host().step_phases
        work = ([(1, args.prompt, 1, 6)] if args.prompt else []) + [(n, args.context, args.steps, 1) for n in args.rows]
        for rows, length, tokens, repeats in work:
            with llm.profile() as report:
                for _ in range(repeats):
                    prompts = [{"prompt_token_ids": source.choices(range(256, 32000), k=length)} for _ in range(rows)]
                    llm.generate(prompts, SamplingParams(temperature=0.0, ignore_eos=True, max_tokens=tokens))
            for (size, longest), program in TimedGraphs.found.items():
                if program.runs and (longest == 1) == (tokens > 1) and (size == rows or tokens == 1):
                    print(f"\n{size} tokens of a prompt" if tokens == 1 else f"\ndecode, {size} rows")
                    show(program)
                program.runs.clear()
            show_profile(Host().terminal, summary(report, phases, 1.0), phases)


if __name__ == "__main__":
    main()
