"""`core bench serve`: load on a running OpenAI-compatible server, core or another."""

from __future__ import annotations

import argparse
import json
import math
import os
from typing import TYPE_CHECKING, Any

from core.api.errors import ConfigError

if TYPE_CHECKING:
    from core.cli.bench.arrivals import Arrivals
    from core.cli.bench.load import Target
    from core.cli.bench.metrics import Record

_ENDPOINTS = {"openai": "/v1/completions", "openai-chat": "/v1/chat/completions"}
_SHOWN_ERRORS = 10


def register(cases: Any) -> None:
    """Add the case."""
    parser = cases.add_parser("serve", help="Load on a running server over HTTP.")
    _add_target_flags(parser.add_argument_group("server"))
    _add_load_flags(parser.add_argument_group("load"))
    _add_result_flags(parser.add_argument_group("result"))
    parser.set_defaults(run=run)


def _add_target_flags(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--backend", choices=sorted(_ENDPOINTS), default="openai", help="Kind of end point.")
    group.add_argument("--base-url", metavar="URL", help="Server; default: http://HOST:PORT.")
    group.add_argument("--host", default="127.0.0.1", help="Host of the server.")
    group.add_argument("--port", type=int, default=8000, help="Port of the server.")
    group.add_argument("--endpoint", metavar="PATH", help="Path; default: the backend's.")
    group.add_argument("--model", help="Model to ask for; default: the server's first.")
    group.add_argument("--tokenizer", help="Only recorded in the result; default: the model.")
    group.add_argument("--api-key", help="Key of the server. [CORE_API_KEY]")
    group.add_argument("--extra-body", type=_json_object, default={}, metavar="JSON", help="Fields for every request.")
    group.add_argument("--temperature", type=float, default=0.0, help="Sampling temperature (default: 0).")
    group.add_argument("--ignore-eos", action="store_true", help="Generate the full output length.")


def _add_load_flags(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--dataset-name", choices=["random"], default="random", help="Where prompts come from.")
    group.add_argument("--num-prompts", type=_positive, default=100, metavar="N", help="Requests (default: 100).")
    group.add_argument("--random-input-len", type=_positive, default=128, metavar="N", help="Prompt tokens.")
    group.add_argument("--random-output-len", type=_positive, default=128, metavar="N", help="Tokens to generate.")
    group.add_argument("--random-prefix-len", type=int, default=0, metavar="N", help="Tokens in front that all share.")
    group.add_argument("--random-range-ratio", type=float, default=0.0, metavar="X", help="Spread of lengths, [0, 1).")
    group.add_argument("--vocab-size", type=_positive, default=32000, metavar="N", help="Prompt ids are below this.")
    group.add_argument("--request-rate", type=float, default=math.inf, metavar="R", help="Requests/s (default: inf).")
    group.add_argument("--burstiness", type=float, default=1.0, metavar="X", help="1: Poisson; less: burstier.")
    group.add_argument("--ramp-up-strategy", choices=["linear", "exponential"], help="Change the rate over the run.")
    group.add_argument("--ramp-up-start-rps", type=float, default=1.0, metavar="R", help="Rate at the start.")
    group.add_argument("--ramp-up-end-rps", type=float, default=10.0, metavar="R", help="Rate at the end.")
    group.add_argument("--max-concurrency", type=_positive, metavar="N", help="Requests open at once.")
    group.add_argument("--num-warmups", type=int, default=0, metavar="N", help="Requests before, not measured.")
    group.add_argument("--seed", type=int, default=0, help="Seed of prompts and arrivals.")


def _add_result_flags(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--percentile-metrics", default="ttft,tpot,itl,e2el", metavar="LIST", help="Metrics to report.")
    group.add_argument("--metric-percentiles", default="99", metavar="LIST", help="Percentiles (default: 99).")
    group.add_argument("--goodput", nargs="+", default=[], metavar="METRIC:MS", help="Objectives, as ttft:200 tpot:50.")
    group.add_argument("--save-result", action="store_true", help="Write the result as JSON.")
    group.add_argument("--save-detailed", action="store_true", help="With the timelines of all requests.")
    group.add_argument("--result-dir", default=".", metavar="DIR", help="Where to write.")
    group.add_argument("--result-filename", metavar="NAME", help="Default: from backend, rate, model and date.")
    group.add_argument("--label", help="Name of this run in the result.")
    group.add_argument("--metadata", nargs="*", default=[], metavar="KEY=VALUE", help="Further fields of the result.")


def run(args: argparse.Namespace) -> int:
    """Send the load, print the figures, and save them; 1 if no request succeeded."""
    import asyncio

    import numpy as np

    from core.cli.bench.load import run_load
    from core.cli.bench.prompts import RandomPrompts

    arrivals, plan = _arrivals(args), _report_plan(args)
    target = _target(args)
    rng = np.random.default_rng(args.seed)
    prompts = RandomPrompts(
        args.random_input_len, args.random_output_len, args.random_prefix_len, args.random_range_ratio, args.vocab_size
    ).make(args.num_prompts, rng)
    times = arrivals.times(len(prompts), rng)
    print(f"{len(prompts)} requests to {target.url}, model {target.model}, rate {args.request_rate:g}/s", flush=True)
    records, duration = asyncio.run(
        run_load(target, prompts, times, max_concurrency=args.max_concurrency, warmups=args.num_warmups)
    )
    _finish(args, target.model, records, duration, plan)
    return 0 if any(not record.error for record in records) else 1


def _finish(args: argparse.Namespace, model: str, records: list[Record], duration: float, plan: dict[str, Any]) -> None:
    from core.cli.bench.metrics import details, summarize
    from core.cli.bench.report import number, save, show

    figures = summarize(records, duration, **plan)
    rows = [(name.replace("_", " "), number(value)) for name, value in figures.items() if value is not None]
    show("Serving benchmark", rows)
    errors = [record.error for record in records if record.error]
    for error in errors[:_SHOWN_ERRORS]:
        print(f"failed: {error}")
    if args.save_result or args.save_detailed:
        header = _header(args, model)
        extra = details(records) if args.save_detailed else {}
        save(os.path.join(args.result_dir, _filename(args, header)), {**header, **figures, **extra})


def _header(args: argparse.Namespace, model: str) -> dict[str, Any]:
    import time

    header = {
        "date": time.strftime("%Y%m%d-%H%M%S"),
        "endpoint_type": args.backend,
        "backend": args.backend,
        "label": args.label,
        "model_id": model,
        "tokenizer_id": args.tokenizer or model,
        "num_prompts": args.num_prompts,
        "request_rate": args.request_rate if math.isfinite(args.request_rate) else "inf",
        "burstiness": args.burstiness,
        "max_concurrency": args.max_concurrency,
    }
    if args.ramp_up_strategy:
        header |= {name: getattr(args, name) for name in ("ramp_up_strategy", "ramp_up_start_rps", "ramp_up_end_rps")}
    for pair in args.metadata:
        key, equals, value = pair.partition("=")
        if not equals:
            raise _bad("--metadata", pair, "KEY=VALUE")
        header[key] = value
    return header


def _filename(args: argparse.Namespace, header: dict[str, Any]) -> str:
    if args.result_filename:
        return str(args.result_filename)
    model = header["model_id"].rsplit("/", 1)[-1]
    concurrency = f"-concurrency{args.max_concurrency}" if args.max_concurrency else ""
    return f"{args.label or args.backend}-{args.request_rate:g}qps{concurrency}-{model}-{header['date']}.json"


def _target(args: argparse.Namespace) -> Target:
    from core.cli.bench.load import Target
    from core.cli.client import Client

    base = (args.base_url or f"http://{args.host}:{args.port}").rstrip("/")
    key = args.api_key or os.environ.get("CORE_API_KEY")
    model = args.model or Client(base, api_key=key).model
    body = {"temperature": args.temperature, **({"ignore_eos": True} if args.ignore_eos else {}), **args.extra_body}
    return Target(
        url=base + (args.endpoint or _ENDPOINTS[args.backend]),
        model=model,
        chat=args.backend == "openai-chat" or "chat" in (args.endpoint or ""),
        headers={"Authorization": f"Bearer {key}"} if key else {},
        body=body,
    )


def _arrivals(args: argparse.Namespace) -> Arrivals:
    from core.cli.bench.arrivals import Arrivals

    for name in ("request_rate", "burstiness", "ramp_up_start_rps", "ramp_up_end_rps"):
        if not getattr(args, name) > 0:
            raise _bad("--" + name.replace("_", "-"), getattr(args, name), "a number > 0")
    if not 0 <= args.random_range_ratio < 1:
        raise _bad("--random-range-ratio", args.random_range_ratio, "a number in [0, 1)")
    return Arrivals(
        args.request_rate, args.burstiness, args.ramp_up_strategy, args.ramp_up_start_rps, args.ramp_up_end_rps
    )


def _report_plan(args: argparse.Namespace) -> dict[str, Any]:
    """Check the flags of the report before any load is sent."""
    from core.cli.bench.metrics import METRICS, parse_goodput

    metrics = [name.strip() for name in args.percentile_metrics.split(",") if name.strip()]
    for name in metrics:
        if name not in METRICS:
            raise _bad("--percentile-metrics", name, ", ".join(METRICS))
    try:
        percentiles = [float(text) for text in args.metric_percentiles.split(",")]
    except ValueError:
        percentiles = [-1.0]
    if not all(0 <= percentile <= 100 for percentile in percentiles):
        raise _bad("--metric-percentiles", args.metric_percentiles, "numbers from 0 to 100 separated by commas")
    return {"metrics": metrics, "percentiles": percentiles, "objectives": parse_goodput(args.goodput)}


def _bad(flag: str, value: object, allowed: str) -> ConfigError:
    return ConfigError("CORE-C108", f"flag {flag}: {value!r} is not allowed; allowed: {allowed}.")


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not an integer >= 1")
    return number


def _json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"not JSON: {error}") from None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError("not a JSON object")
    return value
