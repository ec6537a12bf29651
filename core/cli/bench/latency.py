"""`core bench latency`: how long one batch takes from start to end."""

from __future__ import annotations

import argparse
import time
from typing import Any

from core.cli.bench import offline
from core.cli.bench.profile import add_flag, profiled, show_profile
from core.config.load import load_options


def register(cases: Any) -> None:
    """Add the case."""
    parser = cases.add_parser("latency", help="Time of one batch, offline.")
    group = offline.add_flags(parser, input_len=32, output_len=128)
    group.add_argument("--batch-size", type=int, default=8, metavar="N", help="Requests of the batch (default: 8).")
    group.add_argument("--num-iters", type=int, default=10, metavar="N", help="Batches measured (default: 10).")
    group.add_argument(
        "--warmup", "--num-iters-warmup", type=int, default=3, metavar="N", help="Batches run before (default: 3)."
    )
    add_flag(group)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Measure, print and save."""
    from core.cli.bench.report import save, show

    result = measure(args)
    rows = [("average latency", f"{result['avg_latency']:.4f} s")]
    rows += [(f"{percentile} % percentile", f"{value:.4f} s") for percentile, value in result["percentiles"].items()]
    show("Latency", rows)
    show_profile(result["profile"])
    if args.output_json:
        save(args.output_json, result)
    return 0


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Return `model_id` with `avg_latency`, `latencies` and `percentiles` in seconds, and `profile` by phase."""
    import numpy as np

    from core.cli.bench.prompts import RandomPrompts
    from core.cli.bench.stats import quantiles

    loaded = load_options(args)
    rng = np.random.default_rng(loaded.options.model.seed)
    latencies = []
    with offline.open_model(loaded) as llm:
        model = offline.model_name(llm)
        source = RandomPrompts(args.input_len, args.output_len, vocab_size=offline.vocab_size(llm, args))
        # New prompts every time: a prefix cache must not make later batches faster.
        for _ in range(args.warmup):
            offline.generate(llm, source.make(args.batch_size, rng), args)
        with profiled(llm, args.profile) as profile:
            for _ in range(max(1, args.num_iters)):
                prompts = source.make(args.batch_size, rng)
                started = time.perf_counter()
                offline.generate(llm, prompts, args)
                latencies.append(time.perf_counter() - started)
    return {
        "model_id": model,
        "avg_latency": sum(latencies) / len(latencies),
        "latencies": latencies,
        "percentiles": quantiles(latencies),
        "profile": profile,
    }
