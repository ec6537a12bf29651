"""`core bench throughput`: tokens per second when all requests are there from the start."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from core.api.errors import ConfigError
from core.cli.bench import offline
from core.cli.bench.profile import add_flag, profiled, show_profile
from core.config.load import load_options

if TYPE_CHECKING:
    import numpy as np

    from core import LLM
    from core.cli.bench.prompts import Prompt


def register(cases: Any) -> None:
    """Add the case."""
    parser = cases.add_parser("throughput", help="Tokens per second of many requests, offline.")
    group = offline.add_flags(parser, input_len=128, output_len=128)
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
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Measure, print and save."""
    from core.cli.bench.report import figure_rows, save, show, show_summary

    result = measure(args)
    show("Throughput", figure_rows({name: value for name, value in result.items() if name != "profile"}))
    show_profile(result["profile"])
    rate, generated = result["tokens_per_second"], result["output_tokens_per_second"]
    show_summary(
        f"{result['num_requests']} requests in {result['elapsed_time']:.2f} s: "
        f"{rate:,.1f} tokens/s read and generated, {generated:,.1f} tokens/s generated"
    )
    if args.output_json:
        save(args.output_json, result)
    return 0


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Return `elapsed_time` (seconds), `num_requests`, `total_num_tokens` and the rates of the median run.

    `profile` has the phases of all runs.
    """
    import numpy as np

    from core.cli.bench.prompts import RandomPrompts
    from core.cli.ui.progress import counted

    loaded = load_options(args)
    rng = np.random.default_rng(loaded.options.model.seed)
    runs = []
    with offline.open_model(loaded) as llm:
        model = offline.model_name(llm)
        make = _source(args, llm)
        warm = RandomPrompts(args.input_len, min(4, args.output_len), vocab_size=offline.vocab_size(llm, args))
        with counted("warm-up runs", args.warmup) as steps:
            for _ in steps:
                offline.generate(llm, warm.make(min(4, args.num_prompts), rng), args)
        with counted("runs", max(1, args.num_iters)) as steps, profiled(llm, args.profile) as profile:
            for _ in steps:
                prompts = make(args.num_prompts, rng)
                started = time.perf_counter()
                taken, generated = offline.generate(llm, prompts, args)
                runs.append(figures(time.perf_counter() - started, taken, generated, len(prompts)))
    median = sorted(runs, key=lambda figure: figure["tokens_per_second"])[len(runs) // 2]
    return {"model_id": model, **median, "profile": profile}


def _source(args: argparse.Namespace, llm: LLM) -> Callable[[int, np.random.Generator], list[Prompt]]:
    from core.cli.bench import datasets
    from core.cli.bench.prompts import RandomPrompts

    if args.dataset_name == "random":
        size = offline.vocab_size(llm, args)
        return RandomPrompts(args.input_len, args.output_len, args.prefix_len, args.range_ratio, size).make
    if not args.dataset_path:
        raise ConfigError("CORE-C108", "flag --dataset-path: the file that --dataset-name sharegpt reads is not given.")
    tokenizer = llm.get_tokenizer()
    found = datasets.read_sharegpt(args.dataset_path, None, lambda text: len(tokenizer.encode(text)))
    return partial(datasets.draw, found)


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
