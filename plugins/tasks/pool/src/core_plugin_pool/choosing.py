"""Whether a model pools, and how: from its shape, its makers' files and the user's options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core.api.errors import ConfigError
from core.api.shapes import ModelShape, PoolingShape
from core.api.tasks import TaskChoice, TaskFacts
from core.api.weights import CheckpointInfo

MOST_TOKENS = 2**17
"""Tokens of a prompt for a model that pools, unless `--max-model-len` says more. Tables of positions are made for all
of them, and the KV cache, which bounds a context as well, may be small per token."""

_METHODS = ("mean", "max", "cls", "last")
_MADE = ("method", "normalize", "dense", "prompts", "default_prompt")

Settings = Mapping[str, Any]
"""Values of `--runner`, `--convert` and `--pooling`."""


def choose(facts: TaskFacts) -> TaskChoice | None:
    """Return what a model that pools gives, as `PoolingShape`, and how long its prompts are; None if it generates.

    Raises:
        ConfigError: CORE-C190 the model cannot do what was asked for, CORE-C191 pooling was chosen for a model that
            generates, or that pools in its own way.
    """
    found = pooling_of(facts.settings, facts.checkpoint, facts.shape)
    if found is None:
        return None
    return TaskChoice(longest_prompt(facts.checkpoint, facts.shape), found.model_dump(mode="json"))


def pooling_of(options: Settings, checkpoint: CheckpointInfo, shape: ModelShape) -> PoolingShape | None:
    """Return what the engine gives instead of tokens; None if it generates. Raises as `choose`."""
    if shape.pooling is not None:
        return _made_to_pool(options, checkpoint, shape.pooling)
    wanted = options["runner"] == "pooling" or options["convert"] == "embed"
    if options["runner"] == "generate" or not (wanted or (checkpoint.pooling and options["convert"] == "auto")):
        if options["convert"] == "embed":
            raise _cannot("--convert embed and --runner generate exclude each other.", "Leave one of them out.")
        if options["pooling"] != "auto":
            raise ConfigError(
                "CORE-C191",
                f"--pooling {options['pooling']} was given, but {checkpoint.architecture} generates tokens here.",
                hint="Add --runner pooling to take embeddings from it.",
            )
        return None
    if options["convert"] == "none":
        text = (
            f"{checkpoint.architecture} generates tokens; --runner pooling has to convert it, --convert none forbids."
        )
        raise _cannot(text, "Leave --convert none out.")
    return _embedding(options, checkpoint, PoolingShape(method="last"))


def _made_to_pool(options: Settings, checkpoint: CheckpointInfo, shape: PoolingShape) -> PoolingShape:
    if options["runner"] == "generate":
        does = "embeds" if shape.task == "embed" else "classifies"
        raise _cannot(f"{checkpoint.architecture} does not generate tokens, it {does}.", "Leave --runner generate out.")
    if shape.task == "embed":
        return _embedding(options, checkpoint, shape)
    if options["convert"] == "embed" or options["pooling"] not in ("auto", shape.method):
        asked = "--convert embed" if options["convert"] == "embed" else f"--pooling {options['pooling']}"
        text = f"{asked} was given, but {checkpoint.architecture} classifies, with a head made for '{shape.method}'."
        raise ConfigError("CORE-C191", text, hint="Leave it out.")
    return shape


def _embedding(options: Settings, checkpoint: CheckpointInfo, shape: PoolingShape) -> PoolingShape:
    """Return the shape of an embedding model: the options win, then the makers' files, then the model's default."""
    made: dict[str, Any] = {key: checkpoint.pooling[key] for key in _MADE if key in checkpoint.pooling}
    if made.get("dense"):
        made["size"] = made["dense"][-1]["out_features"]
    if options["pooling"] in _METHODS:
        made["method"] = options["pooling"]
    return PoolingShape.model_validate({**shape.model_dump(), **made, **_dimensions(checkpoint.config)})


def _dimensions(config: Mapping[str, Any]) -> dict[str, Any]:
    """Read whether embeddings may be cut: `matryoshka_dimensions` lists lengths, `is_matryoshka` allows any."""
    listed = config.get("matryoshka_dimensions")
    if isinstance(listed, list) and listed:
        return {"dimensions": tuple(listed)}
    return {"any_dimensions": bool(config.get("is_matryoshka"))}


def _cannot(text: str, hint: str) -> ConfigError:
    return ConfigError("CORE-C190", text, hint=hint)


def longest_prompt(checkpoint: CheckpointInfo, shape: ModelShape) -> int:
    """Return the tokens that a prompt may have by default, at most `MOST_TOKENS`.

    Sentence-transformers' files may allow fewer than the model's positions.
    """
    length = checkpoint.pooling.get("max_length")
    if isinstance(length, int) and length > 0:
        return min(shape.max_positions, length, MOST_TOKENS)
    return min(shape.default_positions, MOST_TOKENS)
