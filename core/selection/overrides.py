"""The checkpoint's configuration as the user wants it: `--hf-overrides` and `--rope-scaling`. Torch-free."""

from __future__ import annotations

import json
import types
from collections.abc import Mapping
from typing import Any

from core.api.errors import ConfigError
from core.api.shapes import ModelShape
from core.api.weights import CheckpointInfo
from core.options.model import ModelOptions
from core.suggest import nearest

_ELSEWHERE: Mapping[str, str] = types.MappingProxyType(
    {
        "quantization_config": "It follows from the checkpoint; --quantization chooses who reads the weights.",
        "eos_token_id": "Answers end where the tokenizer says, and at the `stop_token_ids` of a request.",
        "bos_token_id": "Prompts begin as the tokenizer has them begin.",
    }
)
"""Keys that core reads elsewhere, so that an override would change nothing, and what to use instead."""

_ROTARY = ("rope_parameters", "rope_scaling", "rope_theta")
_ADDED = (
    *(*_ROTARY, "original_max_position_embeddings", "architectures", "num_labels", "is_causal", "layer_types"),
    *("classifier_from_token", "is_original_qwen3_reranker", "method"),
)
"""Keys that people add to configurations that lack them."""

_FULL = "full_attention"
"""Layers that see the whole context, where `rope_parameters` has an object for each kind of layer."""


def overridden(checkpoint: CheckpointInfo, options: ModelOptions) -> CheckpointInfo:
    """Return a checkpoint's facts with the user's changes of its configuration.

    Raises:
        ConfigError: CORE-C200, a change cannot be carried out.
    """
    changes = _changes(options)
    if not changes:
        return checkpoint
    config = {**checkpoint.config, **changes}
    if changes.keys() & set(_ROTARY):
        config |= _rotary(checkpoint.config, changes)
    names = config.get("architectures") or [checkpoint.architecture]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ConfigError("CORE-C200", f"'architectures' must be a list of names, not {names!r:.60}.")
    left = {key: value for key, value in config.items() if value is not None or key not in changes}
    return checkpoint.model_copy(update={"config": left, "architecture": names[0]})


def doubts(stored: CheckpointInfo, shape: ModelShape, options: ModelOptions) -> list[str]:
    """Return a sentence for each change that looks as if it did nothing.

    Args:
        stored: The checkpoint's facts without the changes.
    """
    changes, known = _changes(options), {*stored.config, *_ADDED}
    guesses = {key: nearest(key, known) for key in changes if key not in known}
    found = [
        f"--hf-overrides adds '{key}' to the model's configuration. {guess}" for key, guess in guesses.items() if guess
    ]
    if changes.keys() & set(_ROTARY) and not shape.ropes:
        found.append(f"{stored.architecture} names no rotary embeddings: a change of their scaling may do nothing")
    return found


def described(options: ModelOptions) -> list[str]:
    """Return the changes as a line for a selection's report; none without changes."""
    changes = _changes(options)
    return [f"changed by the user: {json.dumps(changes, ensure_ascii=False)}"] if changes else []


def _changes(options: ModelOptions) -> dict[str, Any]:
    changes = dict(options.hf_overrides)
    for key, instead in _ELSEWHERE.items():
        if key in changes:
            raise ConfigError("CORE-C200", f"--hf-overrides cannot change '{key}'.", hint=instead)
    rotary = [f"'{key}' of --hf-overrides" for key in _ROTARY[:2] if changes.get(key) is not None]
    if options.rope_scaling:
        rotary.append("--rope-scaling")
        changes["rope_scaling"] = options.rope_scaling
    if len(rotary) > 1:
        raise ConfigError("CORE-C200", f"{' and '.join(rotary)} both set the rotary scaling.", hint="Keep one of them.")
    return changes


def _rotary(config: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the rotary parameters under every key that a model may read them from, so that none contradicts another.

    A new rule replaces the old one whole; the base stays unless it is changed too.
    """
    old, new = (_rule(one) for one in (config, changes))
    if isinstance(old.get(_FULL), Mapping) and not any(isinstance(value, Mapping) for value in new.values()):
        # Layers that see a window have a base of their own, and are not scaled.
        full = _rotary({"rope_parameters": old[_FULL]}, changes)["rope_parameters"]
        return {"rope_parameters": {**old, _FULL: full or {}}, "rope_scaling": None}
    rule = new if changes.keys() & {"rope_parameters", "rope_scaling"} else old
    bases = (new.get("rope_theta"), changes.get("rope_theta"), old.get("rope_theta"), config.get("rope_theta"))
    base = {"rope_theta": next(theta for theta in bases if theta is not None)} if any(bases) else {}
    if any(isinstance(value, Mapping) for value in rule.values()):
        return {**base, "rope_parameters": rule, "rope_scaling": None}
    scaling = {key: value for key, value in rule.items() if key != "rope_theta"}
    return {**base, "rope_scaling": scaling or None, "rope_parameters": {**scaling, **base} or None}


def _rule(config: Mapping[str, Any]) -> dict[str, Any]:
    return {**(config.get("rope_parameters") or {}), **(config.get("rope_scaling") or {})}
