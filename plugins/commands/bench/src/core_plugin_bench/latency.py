"""`core bench latency`: how long one batch takes from start to end."""

from __future__ import annotations

import argparse
import time
from typing import Any

from core.api import CommandHost
from core_plugin_bench import offline, plot
from core_plugin_bench.profile import add_flag, profiled, show_profile


def register(cases: Any, host: CommandHost) -> None:
    """Add the case."""
    parser = cases.add_parser("latency", help="Time of one batch, offline.")
    group = offline.add_flags(parser, host, input_len=32, output_len=128)
    group.add_argument("--batch-size", type=int, default=8, metavar="N", help="Requests of the batch (default: 8).")
    group.add_argument("--num-iters", type=int, default=10, metavar="N", help="Batches measured (default: 10).")
    group.add_argument(
        "--warmup", "--num-iters-warmup", type=int, default=3, metavar="N", help="Batches run before (default: 3)."
    )
    add_flag(group)
    plot.add_flag(group)
    parser.set_defaults(case=run)


def run(host: CommandHost, args: argparse.Namespace) -> int:
    """Measure, print and save."""
    from core_plugin_bench.report import save, show, show_summary

    result = measure(host, args)
    rows = [("average latency", f"{result['avg_latency']:.4f} s")]
    rows += [(f"{percentile} % percentile", f"{value:.4f} s") for percentile, value in result["percentiles"].items()]
    show(host.terminal, "Latency", rows)
    show_profile(host.terminal, result["profile"], host.step_phases)
    if args.plot:
        plot.show_plot(host.terminal, "Time of a batch", result["latencies"], "s")
    show_summary(_summary(args, result))
    if args.output_json:
        save(host.files, args.output_json, result)
    return 0


def _summary(args: argparse.Namespace, result: dict[str, Any]) -> str:
    half, last = result["percentiles"]["50"], result["percentiles"]["99"]
    tokens = args.batch_size * args.n * args.output_len / half
    return (
        f"a batch of {args.batch_size} requests of {args.input_len} tokens, {args.output_len} generated, takes "
        f"{half:.3f} s (median of {len(result['latencies'])}; p99 {last:.3f} s): {tokens:,.1f} tokens/s"
    )


def measure(host: CommandHost, args: argparse.Namespace) -> dict[str, Any]:
    """Return `model_id` with `avg_latency`, `latencies` and `percentiles` in seconds, and `profile` by phase."""
    import numpy as np

    from core_plugin_bench.prompts import RandomPrompts
    from core_plugin_bench.stats import quantiles

    options = host.options.load(args)
    rng = np.random.default_rng(options.value("model.seed"))
    latencies = []
    with host.engine(options) as engine:
        model = engine.model
        source = RandomPrompts(args.input_len, args.output_len, vocab_size=offline.vocab_size(engine, args))
        # New prompts every time: a prefix cache must not make later batches faster.
        with host.terminal.counted("warm-up batches", args.warmup) as batches:
            for _ in batches:
                offline.generate(engine, source.make(args.batch_size, rng), args)
        with (
            host.terminal.counted("batches", max(1, args.num_iters)) as batches,
            profiled(engine, host.step_phases, wanted=args.profile) as profile,
        ):
            for _ in batches:
                prompts = source.make(args.batch_size, rng)
                started = time.perf_counter()
                offline.generate(engine, prompts, args)
                latencies.append(time.perf_counter() - started)
    return {
        "model_id": model,
        "avg_latency": sum(latencies) / len(latencies),
        "latencies": latencies,
        "percentiles": quantiles(latencies),
        "profile": profile,
    }
