"""Keys of packed weights: one text for everything that they were made from. Names no folder and holds no secret."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, BinaryIO

from core.version import __version__

if TYPE_CHECKING:
    from core.config.resolved import EngineConfig
    from core.layers.weights import WeightGroup

VERSION = 1
"""Of what core keeps: names and order of the tensors."""

ENDS = 2**20
"""Bytes that are looked at where a file begins and ends."""

PAGES = 48
PAGE = 4096
"""How many pages are looked at between, and their size."""

_READERS = ("core.weight_loaders", "core.models", "core.quantization")


def key_of(config: EngineConfig, groups: Sequence[WeightGroup]) -> str:
    """Return the key of the final parameters of `groups`, 64 hexadecimal digits; empty if the files are not known.

    Raises:
        OSError: A file of the checkpoint cannot be read.
    """
    checkpoint, plan = config.checkpoint, config.plan
    if not checkpoint.files:
        return ""
    planned = [one for group in _READERS if (one := plan.one(group)) is not None]
    facts = {
        "kept": (VERSION, __version__),
        "files": [(os.path.basename(path), *_sampled(path)) for path in checkpoint.files],
        "config": (checkpoint.architecture, checkpoint.config, config.dtype),
        "method": (checkpoint.quantization, checkpoint.quantization_config),
        "readers": [(one.name, one.dist, one.version, dict(one.options)) for one in planned],
        "groups": [(group.prefix, group.identity) for group in groups],
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True, default=repr).encode()).hexdigest()


def _sampled(path: str) -> tuple[int, int, str]:
    """Return a file's size, when it was changed (ns), and a digest of its ends and of pages between."""
    with open(path, "rb") as file:
        found = os.fstat(file.fileno())
        digest = hashlib.sha256()
        for piece in _pieces(file, found.st_size):
            digest.update(piece)
    return found.st_size, found.st_mtime_ns, digest.hexdigest()


def _pieces(file: BinaryIO, size: int) -> Iterator[bytes]:
    if size <= 2 * ENDS + PAGES * PAGE:
        yield file.read()
        return
    yield file.read(ENDS)
    between = size - 2 * ENDS - PAGE
    for number in range(PAGES):
        file.seek(ENDS + between * number // PAGES)
        yield file.read(PAGE)
    file.seek(size - ENDS)
    yield file.read(ENDS)
