"""Facts of the host processor, read from the operating system."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil

from core_plugin_cpu.binding import allowed
from core_plugin_cpu.cgroups import cpu_quota

ISA = {
    "avx2": "AVX2",
    "avx_vnni": "AVX-VNNI",
    "avx512f": "AVX-512",
    "avx512_vnni": "AVX-512 VNNI",
    "avx512_bf16": "AVX-512 BF16",
    "amx_bf16": "AMX BF16",
    "amx_int8": "AMX INT8",
    "asimd": "NEON",
    "bf16": "BF16",
    "i8mm": "I8MM",
    "sve": "SVE",
}
"""Kernel flag -> its usual name, for the instruction sets that matter to inference."""


@dataclass(frozen=True, slots=True)
class Processor:
    """Model name and the kernel's feature flags."""

    name: str
    flags: frozenset[str]

    @property
    def isa(self) -> tuple[str, ...]:
        """Names of the instruction sets that kernels care about."""
        return tuple(name for flag, name in ISA.items() if flag in self.flags)


def read_processor(root: Path = Path("/")) -> Processor:
    """Read `/proc/cpuinfo`; without it the processor has an empty set of flags."""
    fields: dict[str, str] = {}
    try:
        text = (root / "proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    for line in text.splitlines():
        key, separator, value = line.partition(":")
        if separator:
            fields.setdefault(key.strip().lower(), value.strip())
    flags = fields.get("flags") or fields.get("features") or ""
    return Processor(fields.get("model name", "unknown processor"), frozenset(flags.lower().split()))


def available_cores(root: Path = Path("/"), cpus: Iterable[int] | None = None) -> int:
    """Return the physical cores that this process may use: its affinity, without SMT siblings, within its quota.

    Args:
        cpus: Processors instead of all that the affinity allows.
    """
    cores = _physical(allowed() if cpus is None else cpus, root)
    quota = cpu_quota(root)
    return max(1, cores if quota is None else min(cores, math.ceil(quota)))


def _physical(cpus: Iterable[int], root: Path) -> int:
    cpus = list(cpus)
    siblings = {_siblings(cpu, root) for cpu in cpus}
    if "" in siblings:
        return min(len(cpus), psutil.cpu_count(logical=False) or len(cpus))
    return len(siblings)


def _siblings(cpu: int, root: Path) -> str:
    """Return what names the physical core of `cpu`, or an empty text if the kernel does not say."""
    path = root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError:
        return ""
