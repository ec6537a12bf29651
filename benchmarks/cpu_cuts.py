"""What a torch operation in every layer costs a decode step on the CPU: call by call, as a cut program, natively.

    python benchmarks/cpu_cuts.py [--layers 30] [--rows 1 32] [--threads 1] [--repeats 5]

A model of random weights with the sizes of SmolLM2-135M gets one more operation behind each gated activation: `sin`,
for which no native call is known, or `tanh`, which has one. Milliseconds a step, the least over repeats, in turn.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter
from typing import Any
from unittest import mock

import torch
from core_plugin_cpu import graphs, kernels

from core import LLM, SamplingParams
from core_testing.tinymodels import tiny_model

SIZES = {
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "head_dim": 64,
    "max_position_embeddings": 2048,
}
Form = Callable[[torch.Tensor], torch.Tensor]


def with_operation(operation: Form) -> Form:
    """Return the gated activation with an operation behind it."""
    gated = kernels.silu_and_mul
    return lambda x: operation(gated(x))


def call_by_call(_: Any, forward: Any, step: Any) -> graphs.EagerGraph:
    """Record nothing."""
    return graphs.EagerGraph(forward)


def opened(directory: Path, threads: int, operation: Form | None, *, recorded: bool) -> LLM:
    """Open the model in one of the ways: what is recorded is recorded while it starts."""
    with ExitStack() as patches:
        if operation is not None:
            patches.enter_context(mock.patch.object(kernels, "silu_and_mul", with_operation(operation)))
        if not recorded:
            patches.enter_context(mock.patch.object(graphs.ProgramGraphs, "capture", call_by_call))
        return LLM(str(directory), dtype="bfloat16", threads=threads, kv_memory="64MiB", prefix_caching=False)


def spent(llm: LLM, rows: int, tokens: int) -> float:
    """Return the milliseconds of a step with so many rows."""
    prompts = [{"prompt_token_ids": [3 + (7 * row + i) % 90 for i in range(16)]} for row in range(rows)]
    times = []
    for count in (1, 1 + tokens):
        began = perf_counter()
        llm.generate(prompts, SamplingParams(temperature=0.0, max_tokens=count, ignore_eos=True))
        times.append(perf_counter() - began)
    return (times[1] - times[0]) / tokens * 1e3


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=30)
    parser.add_argument("--rows", nargs="*", type=int, default=[1, 32])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=48)
    args = parser.parse_args()
    ways: dict[str, tuple[Form | None, bool]] = {
        "nothing more, native": (None, True),
        "sin, call by call": (torch.sin, False),
        "sin, cut": (torch.sin, True),
        "tanh, call by call": (torch.tanh, False),
        "tanh, native": (torch.tanh, True),
    }
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        directory = tiny_model(Path(folder) / "model", num_hidden_layers=args.layers, dtype="bfloat16", **SIZES)
        models = {
            name: stack.enter_context(opened(directory, args.threads, form, recorded=recorded))
            for name, (form, recorded) in ways.items()
        }
        for name, llm in models.items():
            print(f"{name:22} {llm._engine.ready.facts.get('program') or 'call by call'}")
        for rows in args.rows:
            best = dict.fromkeys(models, float("inf"))
            for _ in range(args.repeats):
                for name, llm in models.items():
                    best[name] = min(best[name], spent(llm, rows, args.tokens))
            print(f"{rows} rows: " + ", ".join(f"{name} {time:.2f}" for name, time in best.items()))


if __name__ == "__main__":
    main()
