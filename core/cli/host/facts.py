"""Facts about a model's files that are known before anything is loaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.api.descriptors import ModelSpec
from core.api.errors import CoreError
from core.api.sampling_table import FROM_MODEL
from core.api.tokenizer import Tokenizer, extras_of
from core.api.weights import CheckpointInfo, CheckpointReader, ModelFiles
from core.cli.host.sizes import sizes_of
from core.config.resolved import SelectOptions
from core.plugins.drivers import Candidate, guarded, load_impl
from core.selection.checkpoints import find_model, find_reader, inspect
from core.selection.parsers import FormatFacts, choose_parsers, likely_parsers
from core.selection.select import Selector

if TYPE_CHECKING:
    from core.api.models import ChatTemplates


def facts_of(selector: Selector, select: SelectOptions, source: Candidate, files: ModelFiles) -> dict[str, Any]:
    """Return name -> value, `files` (name -> bytes) last; None for what is not known.

    Raises:
        CoreError: No plugin reads the files, or they are damaged.
    """
    loader, reader = find_reader(selector, select.load_format, files)
    checkpoint = inspect(selector, loader, reader, files)
    sizes = sizes_of(Path(files.path))
    model, implementation = _implementation(selector, select, checkpoint)
    return {
        "model": files.name,
        "path": files.path,
        "source": source.entry.name,
        "revision": files.revision,
        "architecture": checkpoint.architecture,
        **implementation,
        "parameters": checkpoint.num_parameters,
        "size": sum(sizes.values()),
        "format": checkpoint.format,
        "quantization": _quantization(checkpoint),
        **_formats(selector, loader, reader, files, partial(_suited, model, checkpoint)),
        "sampling": _sampling(checkpoint),
        "license": checkpoint.license,
        "files": sizes,
    }


def _implementation(
    selector: Selector, select: SelectOptions, checkpoint: CheckpointInfo
) -> tuple[Candidate | None, dict[str, Any]]:
    """Return who implements the model, and what it says of the configuration; or why nobody does."""
    config = checkpoint.config
    try:
        model, shape = find_model(selector, select.model_impl, checkpoint)
    except CoreError as error:
        length, dtype = config.get("max_position_embeddings"), config.get("dtype", config.get("torch_dtype"))
        return None, {"implementation": f"none: {error.message}", "context": length, "dtype": dtype}
    task = "embeddings and scores" if shape.pooling is not None else "text"
    return model, {
        "implementation": f"{model.entry.name} ({model.entry.owner})",
        "gives": task,
        "context": shape.max_positions,
        "dtype": shape.dtype,
    }


def _suited(model: Candidate | None, checkpoint: CheckpointInfo, tokenizer: Tokenizer) -> str | None:
    """Return the name of the chat template that the model's plugin takes for a checkpoint without one."""
    path = None if model is None else model.spec(ModelSpec).chat_templates
    if model is None or path is None:
        return None
    family: ChatTemplates = load_impl(path, model.entry)
    return family.suited(checkpoint.config, frozenset(extras_of(tokenizer).added_texts))


def _sampling(checkpoint: CheckpointInfo) -> str | None:
    """Return the makers' sampling defaults that requests are answered with."""
    given = {name: checkpoint.generation_config.get(name) for name in FROM_MODEL}
    return ", ".join(f"{name} {value}" for name, value in given.items() if value is not None) or None


def _quantization(checkpoint: CheckpointInfo) -> str:
    types = checkpoint.quantization_config.get("types")
    if not isinstance(types, Mapping):
        return checkpoint.quantization
    counted = sorted(types.items(), key=lambda one: -one[1])
    return f"{checkpoint.quantization} ({', '.join(f'{count} x {name}' for name, count in counted)})"


def _formats(
    selector: Selector,
    loader: Candidate,
    reader: CheckpointReader,
    files: ModelFiles,
    suited: Callable[[Tokenizer], str | None],
) -> dict[str, Any]:
    """Return whether there is a chat template, and which parsers read what the model writes by it.

    Args:
        suited: Names the template that the model's plugin has for a checkpoint without one.
    """
    facts, name = FormatFacts.of(files.path), None
    with suppress(CoreError):
        tokenizer = guarded(loader.entry, "tokenizer()", reader.tokenizer, Path(files.path))
        facts = replace(facts, chat_template=facts.chat_template or tokenizer.chat_template or "")
        name = None if facts.chat_template else suited(tokenizer)
    return {
        "chat template": "yes"
        if facts.chat_template
        else "no"
        if name is None
        else f"none of its own; served as {name}",
        "tool parser": _parser(selector, "tools", facts),
        "reasoning parser": _parser(selector, "reasoning", facts),
    }


def _parser(selector: Selector, what: str, facts: FormatFacts) -> str:
    if facts.response_template is not None:
        tools, reasoning = ("auto", None) if what == "tools" else (None, "auto")
        with suppress(CoreError):
            return f"{choose_parsers(selector, tools, reasoning, facts)[0].entry.name} (auto)"
    likely = likely_parsers(selector, what, facts)
    return f"to be named; the template has the marks of {', '.join(likely)}" if likely else "none that is known"
