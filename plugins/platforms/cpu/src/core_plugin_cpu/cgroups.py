"""Limits that a container or a service manager puts on this process (Linux control groups, versions 1 and 2)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

UNLIMITED = 1 << 60
"""Version 1 reports "no limit" as a number near 2**63."""


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """The tightest control group: its limit and what is left below it, in bytes."""

    limit: int
    free: int


def memory_limit(root: Path = Path("/")) -> MemoryLimit | None:
    """Return the tightest memory limit on this process, or None where there is none (or no Linux)."""
    found = [_read_memory(folder) for folder in _folders(root, "memory")]
    limits = [limit for limit in found if limit is not None]
    if not limits:
        return None
    return MemoryLimit(min(limit.limit for limit in limits), min(limit.free for limit in limits))


def cpu_quota(root: Path = Path("/")) -> float | None:
    """Return how many processors' worth of time this process may use, or None without a quota."""
    quotas = [_read_quota(folder) for folder in _folders(root, "cpu")]
    return min((quota for quota in quotas if quota is not None), default=None)


def _folders(root: Path, controller: str) -> Iterator[Path]:
    """Yield the folders of this process's group and of all groups above it, for both versions."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if not controllers:
            base = root / "sys/fs/cgroup"
        elif controller in controllers.split(","):
            base = root / "sys/fs/cgroup" / controller
        else:
            continue
        group = base / path.lstrip("/")
        yield group
        yield from (parent for parent in group.parents if parent == base or base in parent.parents)


def _read_memory(folder: Path) -> MemoryLimit | None:
    for limit_file, usage_file, cache_key in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        limit = _number(folder / limit_file)
        if limit is not None and limit < UNLIMITED:
            used = (_number(folder / usage_file) or 0) - _statistic(folder / "memory.stat", cache_key)
            return MemoryLimit(limit, max(limit - max(used, 0), 0))
    return None


def _read_quota(folder: Path) -> float | None:
    fields = _text(folder / "cpu.max").split()
    if len(fields) == 2 and fields[0].isdigit() and int(fields[1]):
        return int(fields[0]) / int(fields[1])
    quota, period = _number(folder / "cpu.cfs_quota_us"), _number(folder / "cpu.cfs_period_us")
    return quota / period if quota is not None and quota > 0 and period else None


def _statistic(path: Path, key: str) -> int:
    """Page cache counts as used, but the kernel gives it up before it refuses memory."""
    for line in _text(path).splitlines():
        name, _, value = line.partition(" ")
        if name == key and value.isdigit():
            return int(value)
    return 0


def _number(path: Path) -> int | None:
    text = _text(path).strip()
    return int(text) if text.lstrip("-").isdigit() else None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
