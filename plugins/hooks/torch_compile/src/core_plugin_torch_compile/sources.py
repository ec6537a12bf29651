"""By what compiled pieces are known: whatever could make them other ones."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch

TRACED = ("core.layers", "core.ops", "core_plugin_")
"""Modules that a forward pass calls."""


def key_of(model: Any, info: Mapping[str, Any], backend: str) -> str:
    """Return the key of a model's pieces, in hex: versions, machine, model, and the text of what is traced."""
    digest = sha256()
    kind = type(model)
    facts = (torch.__version__, platform.python_version(), platform.machine(), backend, kind.__module__, kind.__name__)
    for fact in (*facts, info.get("architecture"), info.get("device"), info.get("num_parameters")):
        digest.update(f"{fact}\0".encode())
    for name, path in sorted(_sources(kind.__module__)):
        digest.update(f"{name}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _sources(own: str) -> Iterator[tuple[str, Path]]:
    for name, module in list(sys.modules.items()):
        path = Path(getattr(module, "__file__", None) or "")
        if (name == own or name.startswith(TRACED)) and path.suffix == ".py" and path.is_file():
            yield name, path
