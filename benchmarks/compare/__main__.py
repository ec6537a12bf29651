"""Measure engines beside each other on this machine and write docs/benchmarks.md.

make bench                                  # core and transformers
make bench-peers                            # all engines, three rounds; PEERS=folder ROUNDS=n
python -m benchmarks.compare --only vllm    # a part; what is already there is kept
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
from benchmarks.compare.cases import GROUPS, VARIANTS, Variant
from benchmarks.compare.environments import Environments
from benchmarks.compare.groups import Setting
from benchmarks.compare.process import MeasurementError
from benchmarks.compare.shell import SetupError
from benchmarks.compare.store import Store

ROOT = Path(__file__).resolve().parent.parent.parent
_NOISY = 0.1


def main() -> None:
    """Run what is missing and write the report."""
    args = _parse()
    # What was started is then ended as well.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = Path(args.peers).expanduser().resolve()
    store, environments = Store(folder / "results"), Environments(folder)
    chosen = [variant for variant in VARIANTS if _named(variant, args.only)]
    for variant in chosen:
        if _named(variant, args.refresh) and args.refresh:
            for group in args.groups:
                store.forget(variant.name, group)
    if args.setup:
        _set_up(chosen, environments, folder)
        return
    if not args.report:
        # The first round measures what every later one only repeats; pictures need one.
        for turn in range(1, args.rounds + 1):
            for group in args.groups:
                for variant in chosen:
                    if group in variant.groups and (turn == 1 or group != "rates"):
                        _measure(variant, group, turn, store, environments, args, folder)
    docs = ROOT / "docs"
    pages = []
    if any(not variant.shape for variant in chosen):
        report.write(docs, store, environments)
        pages.append("benchmarks.md")
    if any(variant.shape for variant in chosen) and shape_report.write(docs, store, environments):
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
        env = environments.get(variant.engine)
        model = models.prepare(folder / "models", variant.model)
        setting = Setting(variant, env, model, args.threads, args.repeats, tuple(args.gate.split()))
        record["data"] = groups.measure(setting, group)
    except (SetupError, MeasurementError) as error:
        record["error"] = str(error)
    record["wall_s"] = time.monotonic() - begin
    store.put(variant.name, group, turn, record)
    others = record.get("data", {}).get("others", 0.0)
    note = f", others used {others:.0%} of the machine" if others > _NOISY else ""
    print(f"{record['wall_s']:.0f} s{note} {record.get('error', '')}", flush=True)


def _set_up(chosen: list[Variant], environments: Environments, folder: Path) -> None:
    for engine in dict.fromkeys(variant.engine for variant in chosen):
        try:
            environments.get(engine)
            print(f"{engine}: {environments.facts()[engine]}")
        except SetupError as error:
            print(f"{engine}: cannot be used: {error}")
    for variant in chosen:
        models.prepare(folder / "models", variant.model)


def _named(variant: Variant, names: list[str]) -> bool:
    if variant.shape:  # gigabytes of files: only for who asks
        return variant.name in names or variant.shape in names
    return not names or variant.name in names or variant.engine in names


def _parse() -> argparse.Namespace:
    cache = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")) / "core-bench"
    parser = argparse.ArgumentParser(prog="benchmarks.compare", description=__doc__)
    parser.add_argument("--peers", default=str(cache), metavar="DIR", help="Environments, models and results.")
    parser.add_argument("--rounds", type=int, default=3, help="Rounds; each measures every engine in turn.")
    parser.add_argument("--repeats", type=int, default=3, help="Repeats within a measurement.")
    parser.add_argument("--threads", type=int, default=psutil.cpu_count(logical=False) or os.cpu_count() or 1)
    parser.add_argument("--only", type=_names, default=[], metavar="LIST", help="Engines, variants or shapes.")
    parser.add_argument("--groups", type=_names, default=list(GROUPS), metavar="LIST", help=", ".join(GROUPS))
    parser.add_argument("--refresh", type=_names, default=[], metavar="LIST", help="Measure these again.")
    parser.add_argument("--gate", default="", metavar="CMD", help="Put in front of every timed command.")
    parser.add_argument(
        "--max-others",
        type=float,
        default=1.0,
        metavar="X",
        help="Measure again where others used more of the machine.",
    )
    parser.add_argument("--setup", action="store_true", help="Only make environments and models.")
    parser.add_argument("--report", action="store_true", help="Only write the report again.")
    args = parser.parse_args()
    known = {name for variant in VARIANTS for name in (variant.name, variant.engine, variant.shape) if name}
    for given, allowed in ((args.only, known), (args.refresh, known), (args.groups, set(GROUPS))):
        if unknown := sorted(set(given) - allowed):
            parser.error(f"{', '.join(unknown)}: not one of {', '.join(sorted(allowed))}")
    return args


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


if __name__ == "__main__":
    main()
