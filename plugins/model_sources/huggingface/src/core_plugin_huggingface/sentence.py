"""The files that sentence-transformers puts beside a checkpoint: which modules make the vector."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from core.api import CheckpointError
from core_plugin_huggingface.faults import bad_json
from core_plugin_huggingface.files import read_json

MODULES = "modules.json"
SWITCH = "pooling_mode_"
METHODS = {"mean_tokens": "mean", "mean": "mean", "cls_token": "cls", "cls": "cls", "lasttoken": "last"}
"""Ways of pooling that are known here: older files have a switch for each (`pooling_mode_cls_token`), newer a name."""


def read_pooling(path: Path) -> dict[str, Any]:
    """Return `method`, `normalize` and `max_length` as far as the files say; empty without `modules.json`.

    Raises:
        CheckpointError: CORE-M131 a file is wrong, CORE-M135 a module or a way of pooling is not known here: the
            vectors would not be those of the model's makers.
    """
    if not (path / MODULES).is_file():
        return {}
    found: dict[str, Any] = {"normalize": False}
    for kind, folder in _modules(path / MODULES):
        if kind == "Pooling":
            found["method"] = _method(folder / "config.json")
        elif kind == "Normalize":
            found["normalize"] = True
        elif kind != "Transformer":
            raise _unknown(path / MODULES, f"the module '{kind}'")
    settings = path / "sentence_bert_config.json"
    length = read_json(settings).get("max_seq_length") if settings.is_file() else None
    return found | ({"max_length": length} if isinstance(length, int) else {})


def _modules(file: Path) -> list[tuple[str, Path]]:
    """Return the last part of each module's type, and its folder."""
    try:
        listed: list[dict[str, Any]] = json.loads(file.read_bytes())
        if not isinstance(listed, list) or not listed:
            raise TypeError("no list, or an empty one")
        found = [(str(one["type"]).rpartition(".")[2], str(one.get("path") or "")) for one in listed]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise bad_json(file, f"does not list modules with a type ({type(error).__name__}: {error})") from error
    for _, folder in found:
        if Path(folder).name != folder:  # could lead anywhere on the machine
            raise bad_json(file, f"names the folder {folder!r}, which is not beside it")
    return [(kind, file.parent / folder) for kind, folder in found]


def _method(file: Path) -> str:
    config = read_json(file)
    on = [name.removeprefix(SWITCH) for name, value in config.items() if name.startswith(SWITCH) and value is True]
    if not on and config.get("pooling_mode") is not None:
        on = [str(config["pooling_mode"])]
    if len(on) != 1 or on[0] not in METHODS:
        raise _unknown(file, f"pooling by {' and '.join(on) or 'nothing'}")
    return METHODS[on[0]]


def _unknown(file: Path, what: str) -> CheckpointError:
    known = ", ".join(sorted(set(METHODS.values())))
    return CheckpointError(
        "CORE-M135",
        f"{file} asks for {what}, which is not supported; supported are Transformer, Pooling ({known}) and Normalize.",
        hint="Remove modules.json to take plain embeddings from the model.",
    )
