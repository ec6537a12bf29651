"""Where a checkpoint says how its weights are quantized."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from core_plugin_huggingface.faults import bad_json
from core_plugin_huggingface.files import read_json

KEYS = ("quantization_config", "compression_config")
"""Of `config.json`; the second is what compressed-tensors wrote at first."""

FILES = {"hf_quant_config.json": "modelopt", "quantize_config.json": "gptq", "quant_config.json": "awq"}
"""Files beside it that tools wrote before there was such a key, and the method of each."""


def read_quantization(path: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the description of a checkpoint's quantization, with its `quant_method`; empty if it has none.

    Args:
        config: What `config.json` says.

    Raises:
        CheckpointError: CORE-M131, it is no JSON object, or its method is no name.
    """
    inner = config.get("text_config")
    places = [config, inner] if isinstance(inner, Mapping) else [config]
    found = next((place[key] for place in places for key in KEYS if place.get(key)), None)
    if found is not None:
        return _checked(path / "config.json", found)
    for name, method in FILES.items():
        if (path / name).is_file():
            given = read_json(path / name)
            own = given.get("quantization") if method == "modelopt" else given
            return _checked(path / name, {"quant_method": method, **own} if isinstance(own, dict) else own)
    return {}


def _checked(file: Path, found: object) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise bad_json(file, "'quantization_config' is not a JSON object")
    method = found.get("quant_method", "unknown")
    if not isinstance(method, str):
        raise bad_json(file, f"'quant_method' is {method!r:.60}, not a name")
    return found
