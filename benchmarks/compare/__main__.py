"""Measure engines beside each other on this machine and write docs/benchmarks.md and docs/benchmarks-shapes.md.

make bench                                  # core and transformers
make bench-peers                            # all engines, three rounds; PEERS=folder ROUNDS=n
python -m benchmarks.compare --only vllm    # a part; what is already there is kept
python -m benchmarks.compare --only llama-3.2-1b,'*-llama-3.2-1b-q4_*@avx2' --groups offline,server
python -m benchmarks.compare --list --only 'qwen3-*'
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import psutil

from benchmarks.compare import groups, models, report, shape_report
from benchmarks.compare.cases import GROUPS, Variant
from benchmarks.compare.environments import Environments
from benchmarks.compare.groups import Setting
from benchmarks.compare.process import MeasurementError
from benchmarks.compare.shell import SetupError
from benchmarks.compare.store import Store
from benchmarks.compare.variants import VARIANTS, chosen, matches

ROOT = Path(__file__).resolve().parent.parent.parent
_NOISY = 0.1


def main() -> None:
    """Run what is missing and write the report."""
    args = _parse()
    selected = chosen(args.only)
    if args.list:
        for variant in selected:
            print(f"{variant.name:<36} {' '.join(group for group in variant.groups if group in args.groups)}")
        return
    # What was started is then ended as well.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = Path(args.peers).expanduser().resolve()
    store, environments = Store(folder / "results"), Environments(folder)
    for variant in selected:
        for group in args.groups if matches(variant, args.refresh) else ():
            store.forget(variant.name, group)
    if args.setup:
        _set_up(selected, environments, folder)
        return
    if not args.report:
        # The first round measures what every later one only repeats; pictures need one.
        for turn in range(1, args.rounds + 1):
            for group in args.groups:
                for variant in selected:
                    if group in variant.groups and (turn == 1 or group != "rates"):
                        _measure(variant, group, turn, store, environments, args, folder)
    _write(selected, store, environments)
    if args.discard:
        models.discard(folder / "models", set().union(*map(_files, selected)))


def _files(variant: Variant) -> set[str]:
    """Return the files that a variant of a shape needs, with those that they are made of; none of the demo model."""
    shape = variant.shape
    return {f"{shape}:bf16", f"{shape}:gguf-bf16", variant.model} if shape else set()


def _write(selected: list[Variant], store: Store, environments: Environments) -> None:
    docs = ROOT / "docs"
    pages = []
    if any(not variant.shape for variant in selected):
        report.write(docs, store, environments)
        pages.append("benchmarks.md")
    if any(variant.shape for variant in selected) and shape_report.write(docs, store, environments):
        pages.append(shape_report.PAGE)
    for page in pages:
        print(f"wrote {docs / page}")


def _measure(
    variant: Variant,
    group: str,
    turn: int,
    store: Store,
    environments: Environments,
    args: argparse.Namespace,
    folder: Path,
) -> None:
    if store.has(variant.name, group, turn, others=args.max_others):
        return
    print(f"round {turn}, {group}: {variant.name} ", end="", flush=True)
    begin = time.monotonic()
    record: dict[str, Any] = {"when": time.strftime("%Y-%m-%d %H:%M")}
    try:
        env = environments.get(variant.engine, variant.isa)
        model = models.prepare(folder / "models", variant.model)
        setting = Setting(variant, env, model, args.threads, args.repeats, tuple(args.gate.split()))
        record["data"] = groups.measure(setting, group)
    except (SetupError, MeasurementError, OSError) as error:
        record["error"] = str(error)
    record["wall_s"] = time.monotonic() - begin
    store.put(variant.name, group, turn, record)
    others = record.get("data", {}).get("others", 0.0)
    note = f", others used {others:.0%} of the machine" if others > _NOISY else ""
    print(f"{record['wall_s']:.0f} s{note} {record.get('error', '')}", flush=True)


def _set_up(selected: list[Variant], environments: Environments, folder: Path) -> None:
    for engine, isa in dict.fromkeys((variant.engine, variant.isa) for variant in selected):
        try:
            environments.get(engine, isa)
        except SetupError as error:
            print(f"{engine}: cannot be used: {error}")
    print("\n".join(f"{engine}: {facts}" for engine, facts in environments.facts().items()))
    for variant in selected:
        models.prepare(folder / "models", variant.model)


def _parse() -> argparse.Namespace:
    cache = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")) / "core-bench"
    parser = argparse.ArgumentParser(prog="benchmarks.compare", description=__doc__)
    parser.add_argument("--peers", default=str(cache), metavar="DIR", help="Environments, models and results.")
    parser.add_argument("--rounds", type=int, default=3, help="Rounds; each measures every engine in turn.")
    parser.add_argument("--repeats", type=int, default=3, help="Repeats within a measurement.")
    parser.add_argument("--threads", type=int, default=psutil.cpu_count(logical=False) or os.cpu_count() or 1)
    parser.add_argument(
        "--only",
        type=_names,
        default=[],
        metavar="LIST",
        help="Names or patterns: of variants, of engines (of the demo model), of shapes.",
    )
    parser.add_argument("--groups", type=_names, default=list(GROUPS), metavar="LIST", help=", ".join(GROUPS))
    parser.add_argument("--refresh", type=_names, default=[], metavar="LIST", help="Measure these again; as --only.")
    parser.add_argument("--gate", default="", metavar="CMD", help="Put in front of every timed command.")
    parser.add_argument(
        "--max-others",
        type=float,
        default=1.0,
        metavar="X",
        help="Measure again where others used more of the machine.",
    )
    parser.add_argument("--list", action="store_true", help="Show what is selected, and what is measured of it.")
    parser.add_argument("--discard", action="store_true", help="Remove the files of the selected shapes afterwards.")
    parser.add_argument("--setup", action="store_true", help="Only make environments and models.")
    parser.add_argument("--report", action="store_true", help="Only write the report again.")
    args = parser.parse_args()
    for pattern in (*args.only, *args.refresh):
        if not chosen([pattern]):
            names = sorted({variant.subject or variant.engine for variant in VARIANTS})
            parser.error(f"{pattern}: no variant has such a name (--list shows them), nor one of {', '.join(names)}")
    if unknown := sorted(set(args.groups) - set(GROUPS)):
        parser.error(f"{', '.join(unknown)}: not one of {', '.join(GROUPS)}")
    return args


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


if __name__ == "__main__":
    main()
