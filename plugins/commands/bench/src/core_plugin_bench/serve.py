"""`core bench serve`: load on a running OpenAI-compatible server, core or another."""

from __future__ import annotations

import argparse
import math
import os
import time
from typing import TYPE_CHECKING, Any

from core.api import CommandHost, CoreError, Servers
from core_plugin_bench import plot, serve_flags
from core_plugin_bench.serve_flags import bad

if TYPE_CHECKING:
    import numpy as np

    from core_plugin_bench.load import Pace, Target
    from core_plugin_bench.metrics import Record, Run
    from core_plugin_bench.prompts import Prompt

_SHOWN_ERRORS = 10
_BUSY_CLIENT = 0.8
"""Share of a core beyond which the client's own work may show in the latencies."""


def register(cases: Any, host: CommandHost) -> None:
    """Add the case."""
    parser = cases.add_parser("serve", help="Load on a running server over HTTP.")
    serve_flags.add_flags(parser)
    parser.set_defaults(case=run)


def run(host: CommandHost, args: argparse.Namespace) -> int:
    """Send the load, print the figures, and save them; 1 if no request succeeded."""
    import numpy as np

    serve_flags.check_pace(args)
    plan, metadata = _report_plan(args), serve_flags.pairs("--metadata", args.metadata)
    rng = np.random.default_rng(args.seed)
    target = _target(host.servers, args, rng)
    prompts = _prompts(host.servers, args, target, rng)
    pace = _pace(args, rng)
    print(
        f"{len(prompts)} requests to {target.url}, model {target.models[0]}, rate {args.request_rate:g}/s", flush=True
    )
    if args.ready_check_timeout_sec > 0:
        _await_answer(host, target, prompts[0], args.ready_check_timeout_sec)
    done = _measured(host, target, prompts, pace, progress=not args.no_progress)
    _finish(host, args, {**_header(args, target.models[0]), **metadata}, done, plan)
    return 0 if any(not record.error for record in done.records) else 1


def _measured(host: CommandHost, target: Target, prompts: list[Prompt], pace: Pace, *, progress: bool) -> Run:
    from core_plugin_bench.load import run_load, run_loop

    if not progress:
        return run_loop(host.signals, lambda: run_load(host.servers, target, prompts, pace))
    with host.terminal.requests(len(prompts), steady=False) as shown:

        def finished(record: Record) -> None:
            shown.step(failed=bool(record.error), tokens=record.output_len)

        return run_loop(host.signals, lambda: run_load(host.servers, target, prompts, pace, finished))


def _finish(
    host: CommandHost, args: argparse.Namespace, header: dict[str, Any], done: Run, plan: dict[str, Any]
) -> None:
    from core_plugin_bench.metrics import METRICS, details, samples_of, summarize
    from core_plugin_bench.report import append, figure_rows, save, show, show_summary

    figures = summarize(done, **plan)
    show(host.terminal, "Serving benchmark", figure_rows(figures))
    if args.plot:
        samples = samples_of([record for record in done.records if not record.error])
        for name in plan["metrics"]:
            plot.show_plot(host.terminal, METRICS[name], [seconds * 1e3 for seconds in samples[name]], "ms")
    show_summary(_summary(done, figures))
    for error in [record.error for record in done.records if record.error][:_SHOWN_ERRORS]:
        print(f"failed: {error}")
    if figures["client_cpu_share"] > _BUSY_CLIENT:
        print(f"note: this client used {figures['client_cpu_share']:.0%} of a core; its own work may be in the figures")
    result = {**header, **figures, **(details(done.records) if args.save_detailed else {})}
    if args.append_result:
        append(os.path.join(args.result_dir, _filename(args, header)), result)
    elif args.save_result or args.save_detailed:
        save(host.files, os.path.join(args.result_dir, _filename(args, header)), result)


def _summary(done: Run, figures: dict[str, Any]) -> str:
    from core_plugin_bench.stats import quantiles

    text = (
        f"{figures['completed']} of {len(done.records)} requests in {done.duration:.1f} s: "
        f"{figures['request_throughput']:,.2f} requests/s, {figures['output_throughput']:,.1f} tokens/s generated"
    )
    waits = [record.ttft * 1e3 for record in done.records if not record.error]
    if not waits:
        return text
    found = quantiles(waits, (50, 99))
    return f"{text}, first token after {found['50']:.0f} ms (median; p99 {found['99']:.0f} ms)"


def _header(args: argparse.Namespace, model: str) -> dict[str, Any]:
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
    return header


def _filename(args: argparse.Namespace, header: dict[str, Any]) -> str:
    if args.result_filename:
        return str(args.result_filename)
    rate = f"{args.request_rate}qps"
    if args.ramp_up_strategy:
        rate = f"ramp-up-{args.ramp_up_strategy}-{args.ramp_up_start_rps:g}qps-{args.ramp_up_end_rps:g}qps"
    concurrency = f"-concurrency{args.max_concurrency}" if args.max_concurrency else ""
    model = header["model_id"].rstrip("/").rsplit("/", 1)[-1]
    return f"{args.label or args.backend}-{rate}{concurrency}-{model}-{header['date']}.json"


def _target(servers: Servers, args: argparse.Namespace, rng: np.random.Generator) -> Target:
    from core_plugin_bench.load import Target

    key = args.api_key or os.environ.get("CORE_API_KEY")
    verify = False if args.insecure else servers.trust(args.ca)
    base = _base(servers, args)
    named = args.served_model_name or args.model
    models = [named or servers.connect(base, api_key=key, model=None, verify=verify).model]
    if args.lora_modules:
        names = args.lora_modules
        models = (
            names if args.lora_assignment == "round-robin" else [str(n) for n in rng.choice(names, args.num_prompts)]
        )
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return Target(
        url=base + (args.endpoint or serve_flags.ENDPOINTS[args.backend]),
        models=tuple(models),
        chat=args.backend == "openai-chat" or "chat" in (args.endpoint or ""),
        headers={**headers, **serve_flags.pairs("--header", args.header)},
        body=_body(args),
        request_id_prefix=args.request_id_prefix,
        verify=verify,
    )


def _base(servers: Servers, args: argparse.Namespace) -> str:
    return servers.root(args.base_url, "--base-url") if args.base_url else f"http://{args.host}:{args.port}"


def _body(args: argparse.Namespace) -> dict[str, Any]:
    names = (*serve_flags.SAMPLING, "logprobs", "chat_template_kwargs")
    body = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    if args.backend == "openai-chat" and "logprobs" in body:
        body["top_logprobs"], body["logprobs"] = body["logprobs"], True
    return {**body, **({"ignore_eos": True} if args.ignore_eos else {}), **args.extra_body}


def _prompts(servers: Servers, args: argparse.Namespace, target: Target, rng: np.random.Generator) -> list[Prompt]:
    from core_plugin_bench import datasets
    from core_plugin_bench.counting import local_tokenizer, server_count
    from core_plugin_bench.prompts import RandomPrompts

    tokenizer = local_tokenizer(args.tokenizer)
    shuffle = not args.disable_shuffle
    if args.dataset_name == "custom":
        found = datasets.read_custom(args.dataset_path, args.output_len or args.custom_output_len)
        return datasets.draw(found, args.num_prompts, rng, shuffle=shuffle)
    if args.dataset_name == "sharegpt":
        remote = server_count(_base(servers, args), target.models[0], target.headers, verify=target.verify)
        count = (lambda text: len(tokenizer.encode(text))) if tokenizer else remote
        found = datasets.read_sharegpt(args.dataset_path, args.output_len or args.sharegpt_output_len, count)
        return datasets.draw(found, args.num_prompts, rng, shuffle=shuffle)
    vocab = min(args.vocab_size, tokenizer.vocab_size) if tokenizer else args.vocab_size
    source: datasets.PrefixPrompts | RandomPrompts
    if args.dataset_name == "prefix_repetition":
        lengths = args.prefix_repetition_prefix_len, args.prefix_repetition_suffix_len
        output_len = args.output_len or args.prefix_repetition_output_len
        source = datasets.PrefixPrompts(*lengths, args.prefix_repetition_num_prefixes, output_len, vocab)
    else:
        output_len = args.random_output_len or args.output_len or 128
        source = RandomPrompts(
            args.random_input_len, output_len, args.random_prefix_len, args.random_range_ratio, vocab
        )
    prompts = source.make(args.num_prompts, rng)
    if target.chat and tokenizer:
        return datasets.with_text(prompts, tokenizer.decode, lambda text: len(tokenizer.encode(text)))
    return prompts


def _pace(args: argparse.Namespace, rng: np.random.Generator) -> Pace:
    from core_plugin_bench.arrivals import Arrivals
    from core_plugin_bench.load import Pace

    arrivals = Arrivals(
        args.request_rate, args.burstiness, args.ramp_up_strategy, args.ramp_up_start_rps, args.ramp_up_end_rps
    )
    times = arrivals.times(args.num_prompts, rng)
    return Pace(times, args.max_concurrency, args.num_warmups, args.request_timeout)


def _await_answer(host: CommandHost, target: Target, prompt: Prompt, seconds: float) -> None:
    from core_plugin_bench.load import Pace, run_load, run_loop

    deadline = time.monotonic() + seconds
    pace = Pace([0.0], timeout=seconds)
    while True:
        done = run_loop(host.signals, lambda: run_load(host.servers, target, [prompt], pace))
        error = done.records[0].error
        if not error:
            return
        if time.monotonic() > deadline:
            raise CoreError("CORE-S190", f"no answer from {target.url} within {seconds:g} s: {error}.")
        time.sleep(0.2)


def _report_plan(args: argparse.Namespace) -> dict[str, Any]:
    """Check the flags of the report before any load is sent."""
    from core_plugin_bench.metrics import METRICS, parse_goodput

    metrics = [name.strip() for name in args.percentile_metrics.split(",") if name.strip()]
    for name in metrics:
        if name not in METRICS:
            raise bad("--percentile-metrics", name, ", ".join(METRICS))
    try:
        percentiles = [float(text) for text in args.metric_percentiles.split(",")]
    except ValueError:
        percentiles = [-1.0]
    if not all(0 <= percentile <= 100 for percentile in percentiles):
        raise bad("--metric-percentiles", args.metric_percentiles, "numbers from 0 to 100 separated by commas")
    return {"metrics": metrics, "percentiles": percentiles, "objectives": parse_goodput(args.goodput)}
