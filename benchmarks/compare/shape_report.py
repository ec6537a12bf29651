"""docs/benchmarks-shapes.md: engines beside each other on a few layers of models that are too large to be whole."""

from __future__ import annotations

from pathlib import Path

from benchmarks.compare import machine
from benchmarks.compare.cases import OFFLINE, SHAPE_GOALS, VARIANTS
from benchmarks.compare.environments import Environments
from benchmarks.compare.figures import figure, judge
from benchmarks.compare.report import table, verdict_row
from benchmarks.compare.store import Store

PAGE = "benchmarks-shapes.md"
_TITLES = {
    "qwen3-moe": "Four layers of Qwen3-30B-A3B: 128 experts, 8 of a token",
    "deepseek-lite": "Four layers of DeepSeek-V2-Lite, 64 experts, 6 of a token, two shared",
    "qwen3-next": "Four layers of Qwen3-Next-80B-A3B: three of the delta rule, one attends; 128 of its experts",
}
_ENGINES = ("core", "vllm", "llama")


def write(docs: Path, store: Store, environments: Environments) -> bool:
    """Write the page if something was measured; return whether it was."""
    measured = [variant for variant in VARIANTS if variant.shape and store.all(variant.name, "offline")]
    if not measured:
        return False
    sections = [_head(store, environments), *(_shape(store, shape) for shape in SHAPE_GOALS)]
    (docs / PAGE).write_text("\n\n".join(section for section in sections if section) + "\n")
    return True


def _head(store: Store, environments: Environments) -> str:
    lines = [
        "# Benchmarks of layers of large models",
        "",
        "A few layers of models that are too large to be compared whole, with made-up weights",
        "(`benchmarks/compare/shapes.py`): a step reads and computes what the layers of the model would. Method as in",
        "[Benchmarks](benchmarks.md): greedy, end of sequence ignored, prefix cache off, all cores; engines in turn.",
        "",
        "- command: `python -m benchmarks.compare --only qwen3-moe,deepseek-lite,qwen3-next`",
        f"- machine: {machine.describe()}",
        "- a figure: the median over all rounds and repeats, in brackets the smallest and the largest",
    ]
    for engine, versions in environments.facts().items():
        if engine in _ENGINES and "error" not in versions:
            lines.append(f"- {engine}: " + ", ".join(f"{name} {version}" for name, version in versions.items()))
    days = {record["when"][:10] for one in VARIANTS if one.shape for record in store.all(one.name, "offline")}
    lines.append(f"- measured: {', '.join(sorted(days))}")
    return "\n".join(lines)


def _shape(store: Store, shape: str) -> str:
    rows = []
    for variant in VARIANTS:
        found = [figure(store, variant.name, case.name) for case in OFFLINE]
        peak = figure(store, variant.name, "peak")
        if variant.shape == shape and any(found):
            cells = [each.text(1) if each else "-" for each in found]
            rows.append([variant.name, *cells, peak.text() if peak else "-", f"{variant.kv_mib}"])
    if not rows:
        return ""
    head = ["", *(f"{case.title}, {case.unit}" for case in OFFLINE), "peak, MiB", "of it KV"]
    goals = [verdict_row(judge(store, goal)) for goal in SHAPE_GOALS[shape]]
    title = table(("goal", "core", "best peer", "ratio", "asked", ""), goals)
    errors = [
        f"- {variant.name}: {error}"
        for variant in VARIANTS
        if variant.shape == shape
        for error in list(store.errors(variant.name, "offline"))[:1]
        if not store.all(variant.name, "offline")
    ]
    missing = "\n\nNot measured:\n\n" + "\n".join(errors) if errors else ""
    return f"## {_TITLES[shape]}\n\n{title}\n\n{table(head, rows)}{missing}"
