"""`core bench throughput`: tokens per second when all requests are there from the start."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from core.api import CommandHost, ConfigError, OfflineEngine
from core_plugin_bench import offline
from core_plugin_bench.profile import add_flag, profiled, show_profile

if TYPE_CHECKING:
    import numpy as np

    from core_plugin_bench.prompts import Prompt


def register(cases: Any, host: CommandHost) -> None:
    """Add the case."""
    parser = cases.add_parser("throughput", help="Tokens per second of many requests, offline.")
    group = offline.add_flags(parser, host, input_len=128, output_len=128)
    group.add_argument(
        "--dataset-name", choices=["random", "sharegpt"], default="random", help="Where prompts come from."
    )
    group.add_argument("--dataset-path", metavar="FILE", help="ShareGPT's JSON.")
    group.add_argument("--num-prompts", type=int, default=64, metavar="N", help="Requests (default: 64).")
    group.add_argument(
        *("--prefix-len", "--random-prefix-len"),
        type=int,
        default=0,
        metavar="N",
        help="Tokens in front that all share.",
    )
    group.add_argument(
        *("--range-ratio", "--random-range-ratio"),
        type=float,
        default=0.0,
        metavar="X",
        help="Lengths vary by this fraction, in [0, 1).",
    )
    group.add_argument("--num-iters", type=int, default=1, metavar="N", help="Runs; the median counts (default: 1).")
    group.add_argument(
        *("--warmup", "--num-warmups"), type=int, default=1, metavar="N", help="Short runs before (default: 1)."
    )
    add_flag(group)
    parser.set_defaults(case=run)


def run(host: CommandHost, args: argparse.Namespace) -> int:
    """Measure, print and save."""
    from core_plugin_bench.report import figure_rows, save, show, show_summary

    result = measure(host, args)
    figures = {name: value for name, value in result.items() if name != "profile"}
    show(host.terminal, "Throughput", figure_rows(figures))
    show_profile(host.terminal, result["profile"], host.step_phases)
    rate, generated = result["tokens_per_second"], result["output_tokens_per_second"]
    show_summary(
        f"{result['num_requests']} requests in {result['elapsed_time']:.2f} s: "
        f"{rate:,.1f} tokens/s read and generated, {generated:,.1f} tokens/s generated"
    )
    if args.output_json:
        save(host.files, args.output_json, result)
    return 0


def measure(host: CommandHost, args: argparse.Namespace) -> dict[str, Any]:
    """Return `elapsed_time` (seconds), `num_requests`, `total_num_tokens` and the rates of the median run.

    `profile` has the phases of all runs.
    """
    import numpy as np

    from core_plugin_bench.prompts import RandomPrompts

    options = host.options.load(args)
    rng = np.random.default_rng(options.value("model.seed"))
    runs = []
    with host.engine(options) as engine:
        model = engine.model
        make = _source(args, engine)
        warm = RandomPrompts(args.input_len, min(4, args.output_len), vocab_size=offline.vocab_size(engine, args))
        with host.terminal.counted("warm-up runs", args.warmup) as steps:
            for _ in steps:
                offline.generate(engine, warm.make(min(4, args.num_prompts), rng), args)
        with (
            host.terminal.counted("runs", max(1, args.num_iters)) as steps,
            profiled(engine, host.step_phases, wanted=args.profile) as profile,
        ):
            for _ in steps:
                prompts = make(args.num_prompts, rng)
                started = time.perf_counter()
                taken, generated = offline.generate(engine, prompts, args)
                runs.append(run_figures(time.perf_counter() - started, taken, generated, len(prompts)))
    median = sorted(runs, key=lambda figure: figure["tokens_per_second"])[len(runs) // 2]
    return {"model_id": model, **median, "profile": profile}


def _source(args: argparse.Namespace, engine: OfflineEngine) -> Callable[[int, np.random.Generator], list[Prompt]]:
    from core_plugin_bench import datasets
    from core_plugin_bench.prompts import RandomPrompts

    if args.dataset_name == "random":
        size = offline.vocab_size(engine, args)
        return RandomPrompts(args.input_len, args.output_len, args.prefix_len, args.range_ratio, size).make
    if not args.dataset_path:
        raise ConfigError("CORE-C108", "flag --dataset-path: the file that --dataset-name sharegpt reads is not given.")
    tokenizer = engine.tokenizer
    found = datasets.read_sharegpt(args.dataset_path, None, lambda text: len(tokenizer.encode(text)))
    return partial(datasets.draw, found)


def run_figures(elapsed: float, prompt_tokens: int, generated: int, requests: int) -> dict[str, Any]:
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
