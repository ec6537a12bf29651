"""docs/benchmarks.md: goals, figures, spread, and what could not be measured."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.compare import machine
from benchmarks.compare.cases import (
    CHUNK_GOAL,
    COMMAND_GOAL,
    CONCURRENCIES,
    DEMO_VARIANTS,
    GOALS,
    GROUPS,
    OFFLINE,
    RATES,
    READY_GOAL,
    REQUEST_GOAL,
    SERVER_REQUESTS,
    STEP_GOAL,
)
from benchmarks.compare.environments import Environments
from benchmarks.compare.figures import Figure, Verdict, figure, judge
from benchmarks.compare.shell import SetupError
from benchmarks.compare.store import Store

PICTURE = "benchmarks-rates.svg"
_NOISY = 0.1
_PLOTTED = ("core-bf16", "vllm-bf16")


def write(docs: Path, store: Store, environments: Environments) -> None:
    """Write the page, and the picture if there is something to draw."""
    drawn = _draw(docs / PICTURE, store, environments)
    sections = [
        _head(store, environments),
        _goals(store),
        _offline(store),
        _server(store),
        _engine(store),
        _rates(store, drawn),
        _accuracy(store),
        _noise(store),
        _missing(store),
    ]
    (docs / "benchmarks.md").write_text("\n\n".join(section for section in sections if section) + "\n")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table; no rows, no table."""
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *lines]) if lines else ""


def _head(store: Store, environments: Environments) -> str:
    facts = environments.facts()
    lines = [
        "# Benchmarks",
        "",
        "SmolLM2-135M-Instruct (the demo model; every engine gets the same weights, dequantized from its GGUF file and",
        "rounded to the precision named), greedy, end-of-sequence ignored, prefix cache off, all cores. Absolute",
        "figures are those of one machine; what counts are the ratios between engines measured in turn on it. The",
        "sizes that people run, and layers of larger models: [benchmarks-shapes.md](benchmarks-shapes.md).",
        "",
        "- command: `make bench-peers` (`benchmarks/compare`; `make bench` measures core and transformers alone)",
        f"- machine: {machine.describe()}",
        "- a figure: the median over all rounds and repeats, in brackets the smallest and the largest",
    ]
    for engine, versions in facts.items():
        if "error" not in versions and engine != "plot" and "@" not in engine:
            lines.append(f"- {engine}: " + ", ".join(f"{name} {version}" for name, version in versions.items()))
    rounds = {
        record["when"][:10]
        for variant in DEMO_VARIANTS
        for group in GROUPS
        for record in store.all(variant.name, group)
    }
    if rounds:
        lines.append(f"- measured: {', '.join(sorted(rounds))}")
    return "\n".join(lines)


def _goals(store: Store) -> str:
    rows = [verdict_row(judge(store, goal)) for goal in GOALS]
    rows += _own_goals(store)
    return "## Goals\n\n" + table(("goal", "core", "best peer", "ratio", "asked", ""), rows)


def verdict_row(verdict: Verdict) -> list[str]:
    """Return a goal as a row: title, core's figure, the best peer's, their ratio, what was asked, what came of it."""
    goal, ratio = verdict.goal, verdict.ratio
    met = {True: "met", False: "missed", None: "not measured"}[verdict.met]
    asked = f"{'<=' if goal.lower else '>='} {goal.factor:g}"
    digits = 1 if goal.figure.endswith("_ms") else 0
    return [
        goal.title,
        _named(verdict.ours, digits),
        _named(verdict.peer, digits),
        f"{ratio:.2f}" if ratio else "",
        asked,
        met,
    ]


def _own_goals(store: Store) -> list[list[str]]:
    rows = []
    if ready := figure(store, "core-bf16", "ready"):
        rows.append(_bound("(v) server ready, s", ready.text(2), ready.median, READY_GOAL))
    for record in store.all("core-bf16", "engine")[-1:]:
        data = record["data"]
        for name, seconds in data["commands"].items():
            rows.append(_bound(f"(v) `{name}`, s", f"{seconds:.2f}", seconds, COMMAND_GOAL))
        rates, prefix = data["scaling"], data["prefix"]
        rows.append(_share("output tok/s of 256 requests beside 32", rates["256"], rates["32"], least=1.0))
        hit, miss = prefix["ttft_hit_ms"], prefix["ttft_miss_ms"]
        rows.append(_share("time to first token of a prefix hit beside a miss, ms", hit, miss, most=0.1))
    return rows + [row for record in store.all("core-bf16", "overhead")[-1:] for row in _overhead(record["data"])]


def _overhead(data: dict[str, Any]) -> list[list[str]]:
    step = data["engine_overhead"][-1]
    title = f"schedule and settle, {step['rows']:,} running requests, us a step"
    load = data["api_overhead"][-1]  # a server with few streams has the time
    which = f"CPU of the server, {load['streams']:,} streams, us"
    return [
        _bound(title, f"{step['median_us']:,.0f}", step["median_us"], STEP_GOAL),
        _bound(f"{which} a request", f"{load['request_us']:,.0f}", load["request_us"], REQUEST_GOAL),
        _bound(f"{which} a chunk", f"{load['chunk_us']:,.1f}", load["chunk_us"], CHUNK_GOAL),
    ]


def _share(title: str, value: float, base: float, *, least: float = 0.0, most: float = float("inf")) -> list[str]:
    share = value / base
    asked = f">= {least:g}" if least else f"<= {most:g}"
    met = "met" if least <= share <= most else "missed"
    return [title, f"{value:,.0f}", f"core: {base:,.0f}", f"{share:.2f}", asked, met]


def _bound(title: str, text: str, value: float, limit: float) -> list[str]:
    return [title, text, "", "", f"<= {limit:g}", "met" if value <= limit else "missed"]


def _named(each: Figure | None, digits: int) -> str:
    return f"{each.text(digits)} [{each.variant}]" if each else "-"


def _offline(store: Store) -> str:
    rows = []
    for variant in DEMO_VARIANTS:
        found = [figure(store, variant.name, case.name) for case in OFFLINE]
        ready, peak = figure(store, variant.name, "ready"), figure(store, variant.name, "peak")
        if not any(found):
            continue
        cells = [each.text() if each else "-" for each in found]
        rows.append(
            [variant.name, *cells, ready.text(1) if ready else "-", peak.text() if peak else "-", f"{variant.kv_mib}"]
        )
    head = ["", *(f"{case.title}, {case.unit}" for case in OFFLINE), "(v) ready, s", "(vi) peak, MiB", "of it KV"]
    note = (
        "(v) is the server's start where there is one, else loading in a script. (vi) is the peak resident memory of\n"
        "the process tree of the offline cases. llama.cpp is timed by its own `llama-batched-bench`, which feeds\n"
        "fixed tokens instead of choosing them."
    )
    return "## Offline\n\n" + table(head, rows) + "\n\n" + note if rows else ""


def _server(store: Store) -> str:
    rows = []
    for variant in DEMO_VARIANTS:
        for count in CONCURRENCIES:
            keys = ("output_throughput", "median_ttft_ms", "median_tpot_ms", "failed")
            found = [figure(store, variant.name, f"c{count}:{key}") for key in keys]
            if all(found):
                rows.append(
                    [
                        variant.name,
                        str(count),
                        *(each.text(digits) for each, digits in zip(found, (0, 0, 1, 0)) if each),
                    ]
                )
    head = ("", "at once", "output tok/s", "time to first token, ms", "per output token, ms", "failed")
    load = (
        f"{SERVER_REQUESTS} requests of 128 / 128 tokens from `core bench serve`, which shares the cores; medians. As "
        "many at once\ncame before, unmeasured."
    )
    text = f"## (iv) Server\n\n{load}\n\n"
    return text + table(head, rows) if rows else ""


def _engine(store: Store) -> str:
    records = store.all("core-bf16", "engine")
    if not records:
        return ""
    data: dict[str, Any] = records[-1]["data"]
    prefix = data["prefix"]
    rows = [
        [f"{count} requests at once, 64 in / 64 out, output tok/s", f"{rate:,.0f}"]
        for count, rate in data["scaling"].items()
    ]
    rows += [[f"prefill of {length} tokens, prompt tok/s", f"{rate:,.0f}"] for length, rate in data["prefill"].items()]
    asked, computed = prefix["prompt_tokens"], prefix["computed_tokens"]
    rows.append(
        [
            f"prefix of 2,000 tokens, {prefix['requests']} requests: tokens computed of those asked",
            f"{computed:,} of {asked:,}",
        ]
    )
    for record in store.all("core-bf16", "overhead")[-1:]:
        for load in record["data"]["api_overhead"]:
            which = f"CPU of the server, {load['streams']:,} streams, us"
            rows.append([f"{which} a request; a chunk", f"{load['request_us']:,.0f}; {load['chunk_us']:,.1f}"])
    return "## core alone (bf16)\n\n" + table(("", ""), rows)


def _rates(store: Store, drawn: bool) -> str:
    rows = []
    for variant in _PLOTTED:
        for rate in RATES:
            keys = ("output_throughput", "median_ttft_ms", "p99_ttft_ms", "median_tpot_ms")
            found = [figure(store, variant, f"r{rate:g}:{key}") for key in keys]
            if all(found):
                rows.append([variant, f"{rate:g}", *(each.text(1) for each in found if each)])
    head = ("", "requests/s", "output tok/s", "median time to first token, ms", "99 %, ms", "per output token, ms")
    picture = f"![throughput against latency]({PICTURE})\n\n" if drawn else ""
    text = "## Request rates\n\nPoisson arrivals of requests of 128 / 128 tokens, about ten seconds each.\n\n"
    return text + picture + table(head, rows) if rows else ""


def _accuracy(store: Store) -> str:
    found = store.group("accuracy")
    ways = ("tokens", "prompt")
    rows = [
        [name, *(cell for way in ways for cell in (f"{of[way]['divergence']:.5f}", f"{of[way]['agreement']:.1%}"))]
        for name, of in ((name, record["data"]) for name, record in found.items())
    ]
    if not rows:
        return ""
    places = next(iter(found.values()))["data"]["prompt"]["places"]
    text = f"""## Accuracy

Beside transformers in float32 with the decoded weights of the same GGUF file (`bf16`, `int8` and `w8a8`: of the demo
file), {places} tokens of answers to 12 questions: mean divergence (Kullback-Leibler, nats) of the next token's
distribution, and how often the most likely token is the same. What a GGUF file itself has lost does not count.
`python -m benchmarks.accuracy`; decision 0013."""
    head = ["", "divergence, token by token", "the same token", "divergence, prompt", "the same token"]
    return text + "\n\n" + table(head, rows)


def _noise(store: Store) -> str:
    spreads = [
        (each.spread, each.variant, case.name)
        for variant in DEMO_VARIANTS
        for case in OFFLINE
        if (each := figure(store, variant.name, case.name)) and len(each.values) > 1
    ]
    if not spreads:
        return ""
    widest, median = max(spreads), sorted(spreads)[len(spreads) // 2]
    every = [record["data"] for one in DEMO_VARIANTS for group in GROUPS for record in store.all(one.name, group)]
    watched = [data["others"] for data in every if "others" in data]
    noisy = sum(share > _NOISY for share in watched)
    return (
        "## Noise\n\n"
        f"Range of the samples of an offline case as a share of their median: {median[0]:.0%} in the middle case, "
        f"{widest[0]:.0%} at most ({widest[1]}, {widest[2]}).\n"
        f"Others used more than {_NOISY:.0%} of the machine during {noisy} of the {len(watched)} measurements\n"
        f"that watched it (of {len(every)})."
    )


def _missing(store: Store) -> str:
    reasons: dict[str, list[str]] = {}
    for variant in DEMO_VARIANTS:
        for group in variant.groups:
            if not store.all(variant.name, group):
                reason = next(iter(store.errors(variant.name, group)), "not run yet")
                reasons.setdefault(reason, []).append(f"{variant.name} {group}")
    lines = [f"- {', '.join(names)}: {reason}" for reason, names in reasons.items()]
    return "## Not measured\n\n" + "\n".join(lines) if lines else ""


def _draw(target: Path, store: Store, environments: Environments) -> bool:
    series = {}
    for variant in _PLOTTED:
        points = []
        for rate in RATES:
            throughput = figure(store, variant, f"r{rate:g}:output_throughput")
            ttft, tpot = (
                figure(store, variant, f"r{rate:g}:median_ttft_ms"),
                figure(store, variant, f"r{rate:g}:median_tpot_ms"),
            )
            if throughput and ttft and tpot:
                points.append({"rate": rate, "x": throughput.median, "ttft": ttft.median, "tpot": tpot.median})
        if points:
            series[variant] = points
    if not series:
        return False
    try:
        env = environments.get("plot")
    except SetupError as error:
        print(f"no picture: {error}")
        return False
    script = str(Path(__file__).parent / "runners" / "plot.py")
    return subprocess.run([env.python, script, str(target), json.dumps(series)], check=False).returncode == 0
