"""`core collect-env`: facts of this machine and installation, for bug reports. Nothing heavy is imported."""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from core.terminal.tables import room, table
from core.version import __version__

# Instruction sets that kernels choose between; x86 names first, then Arm's.
_FLAGS = (
    *("avx2", "f16c", "fma", "avx_vnni", "avx512f", "avx512bw", "avx512vl", "avx512_vnni", "avx512_bf16"),
    *("avx512_fp16", "amx_tile", "amx_bf16", "amx_int8"),
    *("asimd", "asimddp", "asimdhp", "bf16", "i8mm", "sve", "sve2"),
)
_INDENT = 2
_LEAST_SPACE = 16
_EXTRA_PACKAGES = ("torch", "triton", "transformers", "safetensors", "gguf")
_PREFIXES = ("CORE_", "OMP_", "MKL_", "KMP_", "GOMP_", "HF_", "TORCH", "PYTHON", "LD_PRELOAD", "MALLOC_")
_SECRET_NAME = re.compile(r"KEY(_|$)|(^|_)((TOKEN|SECRET|PASS|CREDENTIALS?|AUTH)(_|$)|PASSW)", re.IGNORECASE)
HIDDEN = "<hidden>"
_URL_LOGIN = re.compile(r"(?<=://)[^/@\s]+(?=@)")
_JSON_SECRET = re.compile(r'("[^"]*(?:key|token|secret|passw|credential)[^"]*"\s*:\s*)"[^"]*"', re.IGNORECASE)


def register(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser("collect-env", help="Print what a bug report needs.")
    parser.add_argument("--json", action="store_true", help="Print JSON.")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the facts."""
    facts = collect(os.environ)
    print(json.dumps(facts, indent=2) if args.json else _text(facts))
    return 0


def collect(environ: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return the facts by topic; values of secret options, and those that look secret, are replaced."""
    from core.config.fields import option_fields

    secret = {variable for field in option_fields() if field.secret for variable in field.envs}
    return {
        "core": {"version": __version__, "python": sys.version.split()[0], "executable": sys.executable},
        "system": {"os": platform.platform(), "machine": platform.machine(), "libc": " ".join(platform.libc_ver())},
        "cpu": _cpu(),
        "memory": _memory(),
        "packages": _packages(),
        "plugins": _plugins(),
        "environment": {
            name: HIDDEN if name in secret and value else redact(name, value)
            for name, value in sorted(environ.items())
            if name.startswith(_PREFIXES)
        },
    }


def redact(name: str, value: str) -> str:
    """Return the value with a mark in the place of secrets: by its name, in the login of a URL, in JSON."""
    if _SECRET_NAME.search(name) and value:
        return HIDDEN
    return _JSON_SECRET.sub(r'\1"<hidden>"', _URL_LOGIN.sub("<hidden>", value))


def _cpu() -> dict[str, str]:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "model": _first(text, "model name") or platform.processor() or "unknown",
        "logical cores": f"{os.cpu_count()} ({allowed} usable)",
        "instruction sets": cpu_flags(_first(text, "flags") or _first(text, "Features")) or "unknown",
    }


def _first(text: str, key: str) -> str:
    match = re.search(rf"^{key}\s*:\s*(.*)$", text, re.MULTILINE)
    return match[1].strip() if match else ""


def cpu_flags(flags: str) -> str:
    """Return those of the flags that kernels choose by."""
    present = set(flags.split())
    return " ".join(flag for flag in _FLAGS if flag in present)


def _memory() -> dict[str, str]:
    import psutil

    from core.config.sizes import format_size

    memory = psutil.virtual_memory()
    return {"total": format_size(memory.total), "available": format_size(memory.available)}


def _packages() -> dict[str, str]:
    from packaging.requirements import Requirement

    required = [Requirement(line).name for line in metadata.requires("core") or []]
    return {name: _version(name) for name in sorted({*required, *_EXTRA_PACKAGES})}


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"


def _plugins() -> dict[str, str]:
    from core.plugins.catalog import Catalogue

    return {f"{entry.group}:{entry.name}": entry.owner for entry in Catalogue.scan().every()}


def _text(facts: dict[str, dict[str, str]]) -> str:
    return "\n\n".join(f"{topic}\n{table((), indented(rows))}" for topic, rows in facts.items() if rows)


def indented(rows: dict[str, str]) -> list[tuple[str, str]]:
    """Return the rows, indented; a value that is longer than the line goes on below: a report must have all of it."""
    first = max((len(name) for name in rows), default=0) + 2 * _INDENT
    space = max(_LEAST_SPACE, (room() or sys.maxsize) - first)
    return [
        (f"{'':{_INDENT}}{name if part == 0 else ''}", value[part : part + space])
        for name, value in rows.items()
        for part in range(0, max(1, len(value)), space)
    ]
