"""Which processors compute threads may run on."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from pathlib import Path

from core.api.errors import ConfigError


def allowed() -> frozenset[int]:
    """Return the processors that the calling thread may run on."""
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))


def restrict(cpus: Iterable[int]) -> None:
    """Keep the calling thread, and threads that it starts, to `cpus`, where the operating system can."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cpus)


def choose(where: str, here: Collection[int], threads: int | None, root: Path = Path("/")) -> frozenset[int]:
    """Return the processors of `here` to compute on.

    Args:
        where: `none` for all of them; a list such as `0-3,8-11`; `auto` for those of the memory node that has most of
            them, because memory of another node is slow. All of them if no node has as many as `threads`.

    Raises:
        ConfigError: CORE-C115, the list names a processor that this process may not use.
    """
    if where == "none":
        return frozenset(here)
    if where != "auto":
        return _listed(where, here)
    nodes = [node & frozenset(here) for node in memory_nodes(root)]
    best = max(nodes, key=len, default=frozenset())
    return best if len(best) >= max(threads or 1, 1) else frozenset(here)


def memory_nodes(root: Path = Path("/")) -> list[frozenset[int]]:
    """Return the processors of every memory node, in their order; empty where the system does not say."""
    folders = (root / "sys/devices/system/node").glob("node[0-9]*")
    found = []
    for folder in sorted(folders, key=lambda folder: int(folder.name.removeprefix("node"))):
        try:
            found.append(parse((folder / "cpulist").read_text(encoding="ascii").strip()))
        except (OSError, ValueError):
            return []
    return found


def parse(text: str) -> frozenset[int]:
    """Return the numbers of a list such as `0-3,8`; raises `ValueError` for anything else."""
    cpus: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        cpus.update(range(int(first), int(last or first) + 1))
    return frozenset(cpus)


def show(cpus: Collection[int]) -> str:
    """Return the inverse of `parse`, as short as can be."""
    parts: list[list[int]] = []
    for cpu in sorted(cpus):
        if parts and parts[-1][-1] == cpu - 1:
            parts[-1][1:] = [cpu]
        else:
            parts.append([cpu])
    return ",".join("-".join(map(str, part)) for part in parts)


def _listed(where: str, here: Collection[int]) -> frozenset[int]:
    wanted = parse(where)
    beyond = wanted - frozenset(here)
    if not wanted or beyond:
        raise ConfigError(
            "CORE-C115",
            f"threads_bind {where} names processors that this process may not use: {show(beyond) or 'none at all'}.",
            hint=f"Allowed here: {show(here)}.",
        )
    return wanted
