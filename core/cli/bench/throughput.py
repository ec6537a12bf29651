"""`core bench throughput`: tokens per second when all requests are there from the start."""

from __future__ import annotations

import argparse
import time
from typing import Any

from core.cli.bench import offline
from core.config.load import load_options


def register(cases: Any) -> None:
    """Add the case."""
    parser = cases.add_parser("throughput", help="Tokens per second of many requests, offline.")
    group = offline.add_flags(parser, input_len=128, output_len=128)
    group.add_argument("--num-prompts", type=int, default=64, metavar="N", help="Requests (default: 64).")
    group.add_argument("--prefix-len", type=int, default=0, metavar="N", help="Tokens in front that all share.")
    group.add_argument(
        "--range-ratio", type=float, default=0.0, metavar="X", help="Lengths vary by this fraction, in [0, 1)."
    )
    group.add_argument("--num-iters", type=int, default=1, metavar="N", help="Runs; the median counts (default: 1).")
    group.add_argument("--warmup", type=int, default=1, metavar="N", help="Short runs before (default: 1).")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Measure, print and save."""
    from core.cli.bench.report import number, save, show

    result = measure(args)
    show("Throughput", [(name.replace("_", " "), number(value)) for name, value in result.items()])
    if args.output_json:
        save(args.output_json, result)
    return 0


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Return `elapsed_time` (seconds), `num_requests`, `total_num_tokens` and the rates of the median run."""
    import numpy as np

    from core.cli.bench.prompts import RandomPrompts

    loaded = load_options(args)
    rng = np.random.default_rng(loaded.options.model.seed)
    runs = []
    with offline.open_model(loaded) as llm:
        vocab_size = offline.vocab_size(llm, args)
        source = RandomPrompts(args.input_len, args.output_len, args.prefix_len, args.range_ratio, vocab_size)
        warm = RandomPrompts(args.input_len, min(4, args.output_len), vocab_size=vocab_size)
        for _ in range(args.warmup):
            offline.generate(llm, warm.make(min(4, args.num_prompts), rng))
        for _ in range(max(1, args.num_iters)):
            prompts = source.make(args.num_prompts, rng)
            started = time.perf_counter()
            generated = offline.generate(llm, prompts)
            elapsed = time.perf_counter() - started
            runs.append(figures(elapsed, sum(len(prompt.token_ids) for prompt in prompts), generated, len(prompts)))
    return sorted(runs, key=lambda figure: figure["tokens_per_second"])[len(runs) // 2]


def figures(elapsed: float, prompt_tokens: int, generated: int, requests: int) -> dict[str, Any]:
    """Return the result of one run."""
    total = prompt_tokens + generated
    return {
        "elapsed_time": elapsed,
        "num_requests": requests,
        "total_num_tokens": total,
        "total_output_tokens": generated,
        "requests_per_second": requests / elapsed,
        "tokens_per_second": total / elapsed,
        "output_tokens_per_second": generated / elapsed,
    }
