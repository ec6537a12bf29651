"""The files that sentence-transformers puts beside a checkpoint: which modules make the vector."""

from __future__ import annotations

import json
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from core.api import CheckpointError
from core_plugin_huggingface.faults import bad_json
from core_plugin_huggingface.files import read_json

MODULES = "modules.json"
PROMPTS = "config_sentence_transformers.json"
SWITCH = "pooling_mode_"
METHODS: Mapping[str, str] = types.MappingProxyType(
    {
        "mean_tokens": "mean",
        "mean": "mean",
        "max_tokens": "max",
        "max": "max",
        "cls_token": "cls",
        "cls": "cls",
        "lasttoken": "last",
    }
)
"""Ways of pooling that are known here: older files have a switch for each (`pooling_mode_cls_token`), newer a name."""

ACTIVATIONS: Mapping[str, str] = types.MappingProxyType(
    {
        "Identity": "none",
        "Tanh": "tanh",
        "ReLU": "relu",
        "GELU": "gelu",
        "SiLU": "silu",
        "Sigmoid": "sigmoid",
    }
)
"""torch's names of what may follow a dense layer."""


def read_pooling(path: Path) -> dict[str, Any]:
    """Return `method`, `normalize`, `dense`, `prompts`, `default_prompt` and `max_length` as far as the files say.

    Empty without `modules.json`. Modules without one that pools give a vector for each token (late interaction).

    Raises:
        CheckpointError: CORE-M131 a file is wrong, CORE-M135 a module or a way of pooling is not known here: the
            vectors would not be those of the model's makers.
    """
    if not (path / MODULES).is_file():
        return {}
    found: dict[str, Any] = {"normalize": False}
    dense = []
    for kind, folder in _modules(path / MODULES):
        if kind == "Pooling":
            found["method"] = _method(folder / "config.json")
        elif kind == "Normalize":
            found["normalize"] = True
        elif kind == "Dense" and not found["normalize"]:
            dense.append(_dense(folder))
        elif kind != "Transformer":
            raise _unknown(path / MODULES, f"the module '{kind}'" + (" behind Normalize" if kind == "Dense" else ""))
    if dense:
        found["dense"] = dense
        if "method" not in found:
            found |= {"method": "all", "normalize": True}
    settings = path / "sentence_bert_config.json"
    length = read_json(settings).get("max_seq_length") if settings.is_file() else None
    return found | _prompts(path / PROMPTS) | ({"max_length": length} if isinstance(length, int) else {})


def _modules(file: Path) -> list[tuple[str, Path]]:
    """Return the last part of each module's type, and its folder."""
    try:
        listed: list[dict[str, Any]] = json.loads(file.read_bytes())
        if not isinstance(listed, list) or not listed:
            raise TypeError("no list, or an empty one")
        found = [(str(one["type"]).rpartition(".")[2], str(one.get("path") or "")) for one in listed]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
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
    if config.get("include_prompt") is False:
        raise _unknown(file, "pooling without the prompt")
    return METHODS[on[0]]


def _dense(folder: Path) -> dict[str, Any]:
    file = folder / "config.json"
    config = read_json(file)
    size, named = config.get("out_features"), str(config.get("activation_function") or "Identity").rpartition(".")[2]
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise bad_json(file, f"gives no positive integer 'out_features', but {size!r:.40}")
    if named not in ACTIVATIONS:
        raise _unknown(file, f"the activation '{named:.40}'")
    if config.get("use_residual"):
        raise _unknown(file, "a residual")
    return {"folder": folder.name, "out_features": size, "activation": ACTIVATIONS[named]}


def _prompts(file: Path) -> dict[str, Any]:
    """Return the texts that are put in front of others; those of which nothing is said are left out."""
    config = read_json(file) if file.is_file() else {}
    prompts = config.get("prompts") or {}
    default = config.get("default_prompt_name")
    if not isinstance(prompts, dict) or not all(isinstance(text, str) for text in prompts.values()):
        raise bad_json(file, "does not map names to texts in 'prompts'")
    if default is not None and default not in prompts:
        raise bad_json(file, f"names the prompt {default!r:.40}, which it does not have")
    found: dict[str, Any] = {"prompts": prompts} if any(prompts.values()) else {}
    return found | ({"default_prompt": default} if default and prompts[default] else {})


def _unknown(file: Path, what: str) -> CheckpointError:
    known = ", ".join(sorted(set(METHODS.values())))
    return CheckpointError(
        "CORE-M135",
        f"{file} asks for {what}, which is not supported; supported are Transformer, Pooling ({known}), Dense and "
        "Normalize.",
        hint="Remove modules.json to take plain embeddings from the model.",
    )
