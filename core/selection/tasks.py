"""Choosing the engine's task: core's own, unless a plugin says that the model is for it. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from core.api.descriptors import TaskSpec
from core.api.errors import ConfigError, PluginError
from core.api.shapes import ModelShape
from core.api.tasks import Task, TaskChoice, TaskFacts
from core.api.verdict import Verdict
from core.api.weights import CheckpointInfo
from core.config.fields import SECRETS
from core.options.model import ModelOptions
from core.plugins.contracts import check_contract
from core.plugins.drivers import Candidate, guarded, load_impl, typed
from core.plugins.kinds import TASK
from core.plugins.known import Table
from core.plugins.options import checked_options, given_options
from core.selection.select import Selector

GENERATE = "generate"
"""The task of core's own."""


@dataclass(frozen=True, slots=True)
class ChosenTask:
    """A task and what follows from it before anything is loaded.

    Attributes:
        name: The plugin's, or `generate`.
        context: Tokens of the longest request by default.
        decodes, step_tokens: As those of its engine half.
        data: What the plugin's halves go by.
        plugin: The plugin; None for core's own task.
        faults: What is wrong with plugins that could not say whether they take the model.
    """

    name: str
    context: int
    decodes: bool = True
    step_tokens: int | None = None
    data: Mapping[str, Any] = field(default_factory=dict)
    plugin: Candidate | None = None
    faults: tuple[PluginError, ...] = ()

    def drives(self, group: str) -> bool:
        """Whether the plugin's front half calls the chosen plugins of a kind."""
        return self.plugin is not None and group in self.plugin.spec(TaskSpec).drives


def choose_task(selector: Selector, options: ModelOptions, checkpoint: CheckpointInfo, shape: ModelShape) -> ChosenTask:
    """Return the task: that of the plugin that takes the model, or core's own.

    Raises:
        CoreError: What a plugin says of what the user wants (CORE-C190, CORE-C191); CORE-P203, the model gives no
            tokens, and nothing here takes it; CORE-P102, two plugins have the name of the best.
    """
    choices: dict[str, TaskChoice] = {}
    faults: dict[str, PluginError] = {}
    refusals: list[ConfigError] = []

    def takes(candidate: Candidate) -> Verdict:
        try:
            choice = _choice(selector, candidate, options, checkpoint, shape)
        except PluginError as error:
            faults[candidate.entry.owner] = error
            raise
        except ConfigError as error:
            refusals.append(error)
            raise
        if choice is not None:
            choices[candidate.entry.owner] = choice
        return Verdict.of(None if choice else f"it does not take {checkpoint.architecture} as it is asked for")

    if not selector.assess(TASK, takes).usable:
        if refusals:
            raise refusals[0]
        _require_tokens(options, checkpoint, shape)
        return ChosenTask(GENERATE, shape.default_positions, faults=tuple(faults.values()))
    plugin = selector.choose(TASK, check=takes, subject=checkpoint.architecture)
    half: type[Task] = load_impl(plugin.descriptor.impl, plugin.entry)
    check_contract(plugin.entry, plugin.descriptor, plugin.descriptor.impl, half)
    choice = choices[plugin.entry.owner]
    return ChosenTask(plugin.entry.name, choice.context, half.decodes, half.step_tokens, dict(choice.data), plugin)


def keeps_blocks(shape: ModelShape) -> bool:
    """Whether the model keeps keys and values of the past: one that sees both ways has no past."""
    return shape.pooling is None or not shape.pooling.bidirectional


def _choice(
    selector: Selector, candidate: Candidate, options: ModelOptions, checkpoint: CheckpointInfo, shape: ModelShape
) -> TaskChoice | None:
    """Ask a plugin. Raises what it raises with a code, and `PluginError` CORE-P103, CORE-P108, CORE-P132, CORE-P160."""
    spec, entry = candidate.spec(TaskSpec), candidate.entry
    known = type(options).model_fields
    if unknown := [name for name in spec.settings if name not in known or f"model.{name}" in SECRETS]:
        raise PluginError("CORE-P132", f"task {entry.owner} cannot have the setting {unknown[0]!r} of the model.")
    ask = load_impl(spec.choose, entry)
    check_contract(entry, spec, spec.choose, ask)
    facts = TaskFacts(
        checkpoint=checkpoint,
        shape=shape,
        settings={name: getattr(options, name) for name in spec.settings},
        options=checked_options(candidate, given_options(entry, selector.options)),
    )
    found: object = guarded(entry, spec.choose, ask, facts)
    return None if found is None else typed(entry, spec.choose, found, TaskChoice)


def _require_tokens(options: ModelOptions, checkpoint: CheckpointInfo, shape: ModelShape) -> None:
    """Refuse what no task here does. Raises `CoreError` CORE-P203, CORE-C190."""
    known = " or ".join(row.dist for row in Table.read().providing(TASK.group))
    hint = f"Install one: pip install {known}." if known else "Install a plugin that provides one."
    if shape.pooling is not None:
        text = f"{checkpoint.architecture} gives no tokens, and no task that takes it is installed."
        raise PluginError("CORE-P203", text, hint=hint)
    if options.runner == "pooling" or options.convert == "embed" or options.pooling != "auto":
        text = f"{checkpoint.architecture} is to pool, and no task that does is installed."
        raise ConfigError("CORE-C190", text, hint=hint)
