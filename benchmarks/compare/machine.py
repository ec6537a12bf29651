"""What the figures depend on: the machine, without its name, and the versions of all engines."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path

import psutil

_FLAGS = (
    "avx2",
    "avx512f",
    "avx512_vnni",
    "avx512_bf16",
    "avx512_fp16",
    "avx_vnni",
    "amx_bf16",
    "amx_int8",
    "asimddp",
    "bf16",
)


def describe() -> str:
    """Return one line: CPUs, their instruction sets, caches and memory."""
    info = _cpuinfo()
    name = re.search(r"model name\s*:\s*(.+)", info)
    flags = set((re.search(r"(?:flags|Features)\s*:\s*(.+)", info) or ["", ""])[1].split())
    has = " ".join(flag for flag in _FLAGS if flag in flags)
    memory = psutil.virtual_memory().total / 2**30
    parts = [f"{platform.machine()}, {os.cpu_count()} CPUs", name[1].strip() if name else "", has]
    parts += [f"L3 {_cache()}" if _cache() else "", f"{memory:.0f} GiB memory", platform.system()]
    return "; ".join(part for part in parts if part)


def _cpuinfo() -> str:
    path = Path("/proc/cpuinfo")
    return path.read_text() if path.exists() else ""


def _cache() -> str:
    path = Path("/sys/devices/system/cpu/cpu0/cache/index3/size")
    if not path.exists():
        return ""
    return f"{int(path.read_text().strip().rstrip('K')) // 1024} MB as the system reports it"
