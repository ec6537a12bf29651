"""docs/benchmarks-shapes.md: engines beside each other on the sizes people run, and on layers of larger models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.compare import machine
from benchmarks.compare.cases import CASES, CONCURRENCIES, SERVER_LENGTH, SERVER_REQUESTS, Case, Variant
from benchmarks.compare.environments import Environments
from benchmarks.compare.figures import Figure, figure, judge
from benchmarks.compare.report import table, verdict_row
from benchmarks.compare.shapes import SHAPES
from benchmarks.compare.store import Store
from benchmarks.compare.variants import SHAPE_GOALS, SHAPE_VARIANTS

PAGE = "benchmarks-shapes.md"
_ENGINES = ("core", "vllm", "llama")
_ORDER = ("decode", "batch8", "batch", "prefill512", "prefill", "prefill8192", "decode8192", "decode32768")
_CASES = sorted((case for cases in CASES.values() for case in cases), key=lambda case: _ORDER.index(case.name))
"""In the order of the columns."""

_HEADS = {
    "decode": "decode, 16 in",
    "batch8": "8 at once",
    "batch": "32 at once",
    "prefill512": "prompt of 512",
    "prefill": "prompt of 1,024",
    "prefill8192": "prompt of 8,192",
    "decode8192": "decode behind 8,192",
    "decode32768": "decode behind 32,768",
}
_SERVED = (
    ("output tok/s", "output_throughput", 1),
    ("first token, ms", "median_ttft_ms", 0),
    ("99 %, ms", "p99_ttft_ms", 0),
    ("per token, ms", "median_tpot_ms", 1),
    ("99 %, ms", "p99_tpot_ms", 1),
    ("failed", "failed", 0),
)


def write(docs: Path, store: Store, environments: Environments) -> bool:
    """Write this machine's section of the page if something was measured; return whether it was.

    Sections of other machines stay as they are.
    """
    subjects: dict[str, list[Variant]] = {}
    for variant in SHAPE_VARIANTS:
        if any(store.all(variant.name, group) for group in variant.groups):
            subjects.setdefault(variant.subject, []).append(variant)
    if not subjects:
        return False
    ours = [_machine(store, environments, subjects), *(_subject(store, *each) for each in subjects.items())]
    path = docs / PAGE
    others = other_machines(path.read_text() if path.exists() else "", machine.describe())
    path.write_text("\n\n".join([_HEAD, *ours, *others]) + "\n")
    return True


def other_machines(page: str, here: str) -> list[str]:
    """Return the sections of a page, which begin with a machine's description, but for that of the machine `here`."""
    sections = [section.strip() for section in page.split("\n## ")[1:]]
    return [f"## {section}" for section in sections if section.partition("\n")[0] != here]


_GROUPS = ",".join([*CASES, "startup", "server"])
_HEAD = f"""# Benchmarks of the sizes people run

Models of these sizes, and a few layers of models that are too large to be compared whole, with made-up
weights (`benchmarks/compare/shapes`): a step reads and computes what the model's would. Method as in
[Benchmarks](benchmarks.md): greedy, end of sequence ignored, prefix cache off, all cores; engines in turn.

- command of a row: `python -m benchmarks.compare --only ROW --groups {_GROUPS}`;
  `--list` shows every name, `--only '*-q4_k_m*'` takes patterns, `--peers DIR` has the other engines
- a section: one machine; measuring on another one adds a section
- a figure: the median over all rounds and repeats, in brackets the smallest and the largest
- a name: engine, shape, form of the weights (none: bf16), and `@` with the instruction sets that the engine
  was held to: core, torch and oneDNN by variables, llama.cpp by its build, vLLM also by what torch tells it
- GGUF files: of llama.cpp's `llama-quantize`; `q4_0` of the mixtures of experts has no other type inside.
  `w8a8`: int8 by channel, inputs by token, as compressed-tensors stores it; `awq`: groups of 128
- share: in decode, of the bytes that memory gives: the weights and the cache that a token reads; in prompts,
  of the operations that products of bfloat16 give: two for a multiply-add of weights and of attention (int8
  can make more than 100 %). Both limits are measured just before each row, with its instruction sets, by the
  best of core and torch (`runners/run_machine.py`)"""


def _machine(store: Store, environments: Environments, subjects: dict[str, list[Variant]]) -> str:
    lines = [f"## {machine.describe()}", "", f"- all of it: `--only {','.join(subjects)}`"]
    for engine, versions in environments.facts().items():
        if engine.partition("@")[0] in _ENGINES and "error" not in versions:
            lines.append(f"- {engine}: " + ", ".join(f"{name} {version}" for name, version in versions.items()))
    days = {
        record["when"][:10]
        for variants in subjects.values()
        for variant in variants
        for group in variant.groups
        for record in store.all(variant.name, group)
    }
    lines.append(f"- measured: {', '.join(sorted(days))}")
    return "\n".join(lines)


def _subject(store: Store, subject: str, variants: list[Variant]) -> str:
    shape, _, isa = subject.partition("@")
    title = SHAPES[shape].title
    goals = [verdict_row(judge(store, goal)) for goal in SHAPE_GOALS.get(subject, ())]
    parts = [
        f"### {title[:1].upper()}{title[1:]}" + (f", held to {isa}" if isa else ""),
        f"`--only {subject}`",
        table(("goal", "core", "best peer", "ratio", "asked", ""), goals),
        _rates(store, variants),
        _ratios(store, variants),
        _memory(store, variants),
        _server(store, variants),
        _missing(store, subject),
    ]
    return "\n\n".join(part for part in parts if part)


def _rates(store: Store, variants: Sequence[Variant]) -> str:
    rows = [[variant.name, *(_rate(store, variant, case) for case in _CASES)] for variant in variants]
    return _without_empty(["tok/s, share", *(_HEADS[case.name] for case in _CASES)], rows)


def _rate(store: Store, variant: Variant, case: Case) -> str:
    rate, share = figure(store, variant.name, case.name), figure(store, variant.name, f"share:{case.name}")
    if not rate:
        return "-"
    return rate.text(1) + (f", {share.median:.0%}" if share else "")


def _ratios(store: Store, variants: Sequence[Variant]) -> str:
    """Return core's rates as multiples of those of its best peer that has the same form of the weights."""
    rows = []
    for ours in variants:
        if ours.engine == "core":
            ending = ours.name.removeprefix("core-")
            peers = [one for one in variants if one is not ours and one.name == f"{one.engine}-{ending}"]
            rows.append([ours.name, *(_ratio(store, ours, peers, case) for case in _CASES)])
    return _without_empty(["core / best peer", *(_HEADS[case.name] for case in _CASES)], rows)


def _ratio(store: Store, ours: Variant, peers: Sequence[Variant], case: Case) -> str:
    mine = figure(store, ours.name, case.name)
    theirs = [found for peer in peers if (found := figure(store, peer.name, case.name))]
    if not mine or not theirs:
        return "-"
    best = max(theirs, key=lambda each: each.median)
    return f"{mine.median / best.median:.2f} ({best.variant.partition('-')[0]})"


def _memory(store: Store, variants: Sequence[Variant]) -> str:
    keys = ("peak", "weights", "held", "over", "started", "stream", "products")
    heads = ("peak, MiB", "weights", "KV held", "over both", "server ready, s", "memory, GB/s", "products, GFLOP/s")
    rows = [[one.name, *(_text(figure(store, one.name, key), key) for key in keys)] for one in variants]
    return _without_empty(["", *heads], rows)


def _text(found: Figure | None, key: str) -> str:
    return found.text(1 if key in ("started", "stream") else 0) if found else "-"


def _server(store: Store, variants: Sequence[Variant]) -> str:
    rows = []
    for variant in variants:
        for count in CONCURRENCIES:
            found = [(figure(store, variant.name, f"c{count}:{key}"), digits) for _, key, digits in _SERVED]
            if any(each for each, _ in found):
                rows.append([variant.name, str(count), *(each.text(digits) if each else "-" for each, digits in found)])
    if not rows:
        return ""
    lengths = f"{SERVER_LENGTH} / {SERVER_LENGTH} tokens"
    note = (
        f"Over HTTP: {SERVER_REQUESTS} requests of {lengths} from `core bench serve`, which shares the cores; medians."
    )
    return note + "\n\n" + table(["", "at once", *(head for head, *_ in _SERVED)], rows)


def _without_empty(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table without the columns and the rows in which nothing is."""
    full = [row for row in rows if any(cell != "-" for cell in row[1:])]
    kept = [place for place in range(len(head)) if place == 0 or any(row[place] != "-" for row in full)]
    return table([head[place] for place in kept], [[row[place] for place in kept] for row in full])


def _missing(store: Store, subject: str) -> str:
    lines = list(_errors(store, subject))
    return "Not measured:\n\n" + "\n".join(lines) if lines else ""


def _errors(store: Store, subject: str) -> Iterator[str]:
    for variant in SHAPE_VARIANTS:
        for group in variant.groups if variant.subject == subject else ():
            if not store.all(variant.name, group):
                yield from (f"- {variant.name}, {group}: {error}" for error in store.errors(variant.name, group)[:1])
