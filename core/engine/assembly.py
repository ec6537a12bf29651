"""From the plugin plan to the participants of an engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import cast

from core.api.descriptors import DrafterSpec, ParticipantSpec
from core.api.errors import PluginError
from core.api.participants import EngineSetup, Participant, StagedRequest
from core.api.steps import WorkerInfo
from core.config.resolved import EngineConfig
from core.engine.participants.compiling.setup import structured_participant
from core.engine.participants.connectors import ConnectorParticipant
from core.engine.participants.drafts import DraftsParticipant
from core.engine.participants.stages import Stages
from core.engine.tasks.base import Task
from core.plugins.boot import ActivePlugins
from core.plugins.faults import Faults
from core.plugins.plan import PlannedPlugin

CONNECTORS, PARTICIPANTS, DRAFTERS = "core.kv_connectors", "core.participants", "core.drafters"
BOUND = (CONNECTORS, PARTICIPANTS, "core.structured_output")
"""Kinds of which participants are made in the engine's process."""


@dataclass(frozen=True)
class Setup:
    """What participants are made of.

    Attributes:
        task: The engine's.
        faults: Returns what accounts for the faults of a planned plugin: `(planned, instead, optional)`.
        cached_tokens: As in `core.api.EngineSetup`.
    """

    config: EngineConfig
    info: WorkerInfo
    active: ActivePlugins
    task: Task
    faults: Callable[[PlannedPlugin, str, bool], Faults]
    cached_tokens: Callable[[StagedRequest], int]


def engine_stages(setup: Setup) -> Stages:
    """Make the engine halves of the plan's participants, in the order in which they are asked."""
    faults: dict[str, Faults] = {}
    participants = _connectors(setup)
    if setup.task.decodes:
        participants.append(structured_participant(setup.config, setup.active))
        participants += _drafters(setup)
    for planned, spec, _ in setup.active.impls(PARTICIPANTS):
        participants.append(_own(setup, planned, cast(ParticipantSpec, spec)))
        faults[planned.name] = setup.faults(planned, "the step goes on without it", False)
    names = [participant.name for participant in participants]
    for name in {name for name in names if names.count(name) > 1}:
        raise PluginError("CORE-P181", f"two participants are called '{name}': their parts could not be told apart.")
    if setup.task.name in names:
        text = (
            f"a participant is called '{setup.task.name}' like the engine's task: their parts could not be told apart."
        )
        raise PluginError("CORE-P182", text)
    return Stages(participants, faults)


def _connectors(setup: Setup) -> list[Participant]:
    config = setup.config
    sizes = {"block_size": config.block_size, "bytes_per_block": setup.info.column_bytes}
    found: list[Participant] = []
    for planned, _, _ in setup.active.impls(CONNECTORS):
        faults = setup.faults(planned, "what it should have supplied is computed", True)
        connector = setup.active.make(planned, planned.options, **sizes)
        found.append(ConnectorParticipant(planned.name, connector, faults))
    return found


def _drafters(setup: Setup) -> list[Participant]:
    """Return the engine halves of the plan's drafters, which are themselves loaded in the worker."""
    options = setup.config.options.scheduler
    return [
        DraftsParticipant(
            planned.name,
            min(options.draft_tokens, cast(DrafterSpec, spec).max_draft),
            options.max_num_seqs,
            setup.faults(planned, "rows run without drafts", True),
        )
        for planned, spec in setup.active.specs(DRAFTERS)
    ]


def _own(setup: Setup, planned: PlannedPlugin, spec: ParticipantSpec) -> Participant:
    """Make the engine half of a plugin."""
    config, active = setup.config, setup.active
    path = Path(config.checkpoint.path)
    given = EngineSetup(
        name=planned.name,
        options=planned.options,
        block_size=config.block_size,
        bytes_per_block=setup.info.column_bytes,
        max_rows=config.options.scheduler.max_num_seqs,
        max_model_len=config.max_model_len,
        vocab_size=config.shape.vocab_size,
        overlap_depth=config.options.scheduler.overlap_depth,
        tokenizer=cache(lambda: active.new_of("core.weight_loaders").tokenizer(path)),
        cached_tokens=setup.cached_tokens,
        chosen=active.chosen,
    )
    made: Participant = active.make(planned, given)
    made.name = planned.name
    if spec.parts is not None:
        made.parts = active.load(planned, spec.parts)
    return made
