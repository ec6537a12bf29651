"""The user's table, written."""

from __future__ import annotations

import os
from collections.abc import Mapping

from core_plugin_kernels_triton.tables import user_path, user_table

_HEAD = "# Written by `core bench tune`: what was faster on this machine than the sizes that are shipped.\n"


def keep(part: str, section: str, sizes: Mapping[str, Mapping[str, int]]) -> None:
    """Put sizes into a section of the user's table; what else is there stays."""
    table = user_table(part)
    table.setdefault(section, {}).update(sizes)
    path = user_path(part)
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(f".{os.getpid()}")
    new.write_text(_HEAD + "".join(_section(name, one) for name, one in sorted(table.items())))
    new.replace(path)  # whoever starts meanwhile reads the old one or the new one


def _section(name: str, kernels: Mapping[str, Mapping[str, int]]) -> str:
    lines = [
        f"{kernel} = {{ {', '.join(f'{key} = {value}' for key, value in sizes.items())} }}\n"
        for kernel, sizes in sorted(kernels.items())
    ]
    return f'\n["{name}"]\n{"".join(lines)}'
