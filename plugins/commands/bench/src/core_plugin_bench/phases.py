"""Phases of a start: those that every process reports, the chain of those that decide, and peak memory."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from core.api import Servers, Terminal

SLACK = 0.005
"""Seconds by which two phases that follow each other may seem to overlap."""


@dataclass(frozen=True, slots=True)
class Phase:
    """A phase of one process; `begin` and `end` in seconds since the first process was started.

    Attributes:
        waiting: It was spent waiting for another process.
    """

    process: str
    name: str
    begin: float
    end: float
    waiting: bool = False

    @property
    def seconds(self) -> float:
        """Its length."""
        return self.end - self.begin


def read_phases(servers: Servers, lines: Iterable[str]) -> list[Phase]:
    """Return the phases in a log of JSON lines, by their beginning; other lines are skipped."""
    found = []
    for line in lines:
        try:
            record = json.loads(line)
            parsed = servers.phase(record["message"])
            when = datetime.fromisoformat(record["time"]).timestamp()
        except (ValueError, KeyError, TypeError):
            continue
        if parsed is not None:
            end = when - parsed.ago
            found.append(Phase(str(record["process"]), parsed.name, end - parsed.seconds, end, parsed.waiting))
    first = min((phase.begin for phase in found), default=0.0)
    moved = [replace(one, begin=one.begin - first, end=one.end - first) for one in found]
    return sorted(moved, key=lambda phase: (phase.begin, phase.end))


def deciding(phases: Sequence[Phase]) -> list[Phase]:
    """Return the critical path, in its order: from the end back, always what ended last before the next began.

    Waiting for another process is not on it; what the other process did is.
    """
    chain: list[Phase] = []
    left = [phase for phase in phases if not phase.waiting]
    while left:
        chain.append(max(left, key=lambda phase: phase.end))
        left = [phase for phase in left if phase.end <= chain[-1].begin + SLACK and phase is not chain[-1]]
    return chain[::-1]


def phases_table(terminal: Terminal, phases: Sequence[Phase]) -> str:
    """Return all phases as a table; those that decide how long the start takes have a mark."""
    chain = deciding(phases)
    rows = [
        (one.process, one.name, *(f"{value:.3f}" for value in (one.begin, one.end, one.seconds)), _mark(one in chain))
        for one in phases
    ]
    share = sum(phase.seconds for phase in chain)
    text = terminal.table(("process", "phase", "from", "to", "seconds", ""), rows, right=(2, 3, 4))
    return f"{text}\n* decides how long the start takes: {share:.3f} s in all"


def peak_memory(pid: int) -> dict[str, list[int]]:
    """Return process -> bytes of peak, anonymous and mapped memory, of a process and all below it (Linux)."""
    import psutil

    root = psutil.Process(pid)
    children = root.children(recursive=True)
    names = ["api", *("engine" if len(children) == 1 else f"engine {child.pid}" for child in children)]
    return {name: _memory(process.pid) for name, process in zip(names, [root, *children])}


def _memory(pid: int) -> list[int]:
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    sizes = dict(line.split(":", 1) for line in status.splitlines() if line.endswith(" kB"))
    return [1024 * int(sizes[key].split()[0]) for key in ("VmHWM", "RssAnon", "RssFile")]


def memory_table(terminal: Terminal, memory: Mapping[str, Sequence[int]]) -> str:
    """Return the memory of all processes, as `peak_memory` found it, as a table."""
    rows = {**memory, "sum": [sum(column) for column in zip(*memory.values())]}
    cells = [(name, *(terminal.size(size) for size in sizes)) for name, sizes in rows.items()]
    return terminal.table(("process", "peak", "anonymous now", "mapped files now"), cells, right=(1, 2, 3))


def _mark(decides: bool) -> str:
    return "*" if decides else ""
