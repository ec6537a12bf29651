"""Which files make up a checkpoint, and in which order."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.api import CheckpointError
from core_plugin_huggingface.faults import bad_end, bad_json, damaged, missing_shard, no_weights
from core_plugin_huggingface.header import Entry, read_header

INDEX = "model.safetensors.index.json"
_CARD = 64 * 1024
"""Characters of a model card in which its front matter ends."""


@dataclass(frozen=True, slots=True)
class Shard:
    """One safetensors file and its tensors, in file order."""

    path: Path
    entries: list[Entry]


def open_shards(directory: Path) -> list[Shard]:
    """Return the weight files in natural order (2 before 10), their headers checked.

    Raises:
        CheckpointError: CORE-M130 damaged file, CORE-M132 a file of the index is missing, CORE-M133 pickled weights,
            CORE-M134 no weights.
    """
    index = directory / INDEX
    if index.is_file():
        return _indexed(index)
    shards = [Shard(path, read_header(path)) for path in _natural(directory.glob("*.safetensors"))]
    if not shards:
        raise no_weights(directory)
    return shards


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file. Raises `CheckpointError` CORE-M131."""
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise bad_json(path, f"cannot be read ({error})") from error
    if not isinstance(value, dict):
        raise bad_json(path, "is not a JSON object")
    return value


def names_architecture(path: Path) -> bool:
    """Say whether a `config.json` is one of this layout, or damaged; other formats have files of that name too."""
    try:
        return "architectures" in read_json(path)
    except CheckpointError:
        return True


def read_generation(directory: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sampling defaults of the model's makers, empty without a file for them.

    Raises:
        CheckpointError: CORE-M131, a file is no JSON object; CORE-M202, `eos_token_id` there or in `config`, the
            content of `config.json`, is not in the vocabulary.
    """
    path = directory / "generation_config.json"
    generation = read_json(path) if path.is_file() else {}
    size = config.get("vocab_size")
    for file, values in ((directory / "config.json", config), (path, generation)):
        given = values.get("eos_token_id")
        ids = given if isinstance(given, list) else [] if given is None else [given]
        wrong = [one for one in ids if type(one) is not int or one < 0 or (type(size) is int and one >= size)]
        if wrong:
            raise bad_end(file, wrong[0], size)
    return generation


def read_license(directory: Path) -> str | None:
    """Return the licence that the model card names in its front matter, or None."""
    try:
        with (directory / "README.md").open(encoding="utf-8", errors="replace") as file:
            head = file.read(_CARD)
    except OSError:
        return None
    front = re.match(r"---\n(.*?)\n---", head, re.DOTALL)
    found = re.search(r"^license:[ \t]*[\"']?([\w.+-]+)", front[1], re.MULTILINE) if front else None
    return found[1] if found else None


def natural_key(name: str) -> list[tuple[int, str]]:
    """Sort key under which numbers count as numbers."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def _natural(paths: Iterator[Path]) -> list[Path]:
    return sorted(paths, key=lambda path: natural_key(path.name))


def _indexed(index: Path) -> list[Shard]:
    places = read_json(index).get("weight_map")
    if not isinstance(places, dict) or not places:
        raise bad_json(index, "has no 'weight_map'")
    tensors: dict[str, list[str]] = {}
    for tensor, shard in places.items():
        # A name with a directory in it could lead anywhere on the machine.
        if not isinstance(shard, str) or Path(shard).name != shard:
            raise bad_json(index, f"'weight_map' gives tensor '{tensor}' the file {shard!r}, which is not a file name")
        tensors.setdefault(shard, []).append(tensor)
    return [_shard(index, shard, tensors[shard]) for shard in sorted(tensors, key=natural_key)]


def _shard(index: Path, name: str, tensors: list[str]) -> Shard:
    path = index.parent / name
    if not path.is_file():
        raise missing_shard(index, name, tensors[0])
    entries = read_header(path)
    held = {entry.name for entry in entries}
    lost = next((tensor for tensor in tensors if tensor not in held), None)
    if lost is not None:
        raise damaged(path, f"tensor '{lost}' should be in it according to {index.name}, but is not")
    return Shard(path, entries)
