"""Items of a phase in many processes at once: what is compared keeps the host busier than the device."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Any

from record import Record

PARTS = Path(__file__).resolve().parents[1] / "parts"


def side_by_side(record: Record, part: str, items: Sequence[str], *, each: int, seconds: float) -> None:
    """Do items by `parts/PART.py`, and write down how many were done, what failed, and what took longest.

    Args:
        each: Items of one process, which shares what they need; after a fault of the device a new one goes on.
        seconds: Limit of one process.
    """
    workers = max(1, min(14, (os.cpu_count() or 2) - 1))
    record.note(f"{part}, processes at once", workers)
    done: list[dict[str, Any]] = []
    lock = Lock()

    def chunk(mine: list[str]) -> None:
        while mine:
            lines, end = _process(record, part, mine, seconds)
            mine = mine[len(lines) :]
            if mine and end:  # it ended within an item, or after a fault in the last that it told
                faulty = bool(lines and lines[-1]["wrong"]) and end == "3"
                if not faulty:
                    lines.append({"item": mine[0], "wrong": [f"the process ended with {end}"], "seconds": 0.0})
                    mine = mine[1:]
            with lock:
                done.extend(lines)
                record.note(f"{part}, done", f"{len(done)} of {len(items)}")
                for line in lines:
                    for text in line["wrong"]:
                        record.fail(f"{line['item']}: {text}")
            if not lines:
                return

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(chunk, [list(items[begin : begin + each]) for begin in range(0, len(items), each)]))
    longest = sorted(done, key=lambda line: -line["seconds"])[:8]
    record.note(f"{part}, longest, s", {line["item"]: line["seconds"] for line in longest})


def _process(record: Record, part: str, items: list[str], seconds: float) -> tuple[list[dict[str, Any]], str]:
    """Return what a process told of its items, and how it ended if not well."""
    command = [sys.executable, str(PARTS / f"{part}.py"), record.platform, str(int(record.small)), *items]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False, env=environment)
        out, end = ran.stdout, str(ran.returncode) if ran.returncode else ""
        if end not in ("", "3"):
            end = f"{end}: {ran.stderr.strip()[-300:]}"
    except subprocess.TimeoutExpired as stopped:
        raw = stopped.stdout or b""
        out, end = raw.decode() if isinstance(raw, bytes) else raw, f"a limit of {seconds:g} s"
    return [json.loads(line) for line in out.splitlines() if line.startswith('{"item"')], end
