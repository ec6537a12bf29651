"""From the plugin plan to the participants of an engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from core.api.descriptors import DrafterSpec, ParticipantSpec
from core.api.errors import PluginError
from core.api.participants import EngineSetup, Participant, StagedRequest
from core.api.steps import WorkerInfo
from core.api.tasks import Task
from core.api.tokenizer import Tokenizer
from core.config import asked
from core.config.resolved import EngineConfig, Options
from core.engine.driven import DRIVEN, DrivenPlugins, tokenizer_of
from core.engine.participants.connectors import ConnectorEngineHalf
from core.engine.participants.drafts import DraftsEngineHalf
from core.engine.participants.stages import Stages
from core.plugins.active import ActivePlugins
from core.plugins.faults import Faults
from core.plugins.plan import PlannedPlugin

CONNECTORS, PARTICIPANTS, DRAFTERS = "core.kv_connectors", "core.participants", "core.drafters"
BOUND = (CONNECTORS, PARTICIPANTS, *DRIVEN)
"""Kinds of which participants are made in the engine's process."""

SECTIONS = ("scheduler",)
"""Sections of core's options that participants may go by."""


@dataclass(frozen=True)
class Setup:
    """Context that participants of the engine are constructed with.

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
        participants += _drafters(setup)
    own = [(planned, cast(ParticipantSpec, spec)) for planned, spec, _ in setup.active.impls(PARTICIPANTS)]
    if own:
        tokenizer = tokenizer_of(setup.config, setup.active)
        driven = DrivenPlugins(setup.config, setup.active, tokenizer)
    for planned, spec in own:
        participants.append(_own(setup, planned, spec, driven, tokenizer))
        instead = "the requests of its step end" if spec.constrains else "the step goes on without it"
        faults[planned.name] = setup.faults(planned, instead, False)
    names = [participant.name for participant in participants]
    for name in {name for name in names if names.count(name) > 1}:
        raise PluginError("CORE-P181", f"two participants are called '{name}': their parts could not be told apart.")
    if setup.task.name in names:
        text = (
            f"a participant is called '{setup.task.name}' like the engine's task: their parts could not be told apart."
        )
        raise PluginError("CORE-P182", text)
    return Stages(participants, faults, frozenset(planned.name for planned, spec in own if spec.constrains))


def _connectors(setup: Setup) -> list[Participant]:
    config = setup.config
    sizes = {"block_size": config.block_size, "bytes_per_block": setup.info.column_bytes}
    found: list[Participant] = []
    for planned, _, _ in setup.active.impls(CONNECTORS):
        faults = setup.faults(planned, "what it should have supplied is computed", True)
        connector = setup.active.make(planned, planned.options, **sizes)
        found.append(ConnectorEngineHalf(planned.name, connector, faults))
    return found


def _drafters(setup: Setup) -> list[Participant]:
    """Return the engine halves of the plan's drafters, which are themselves loaded in the worker."""
    options = setup.config.options.scheduler
    return [
        DraftsEngineHalf(
            planned.name,
            min(options.draft_tokens, cast(DrafterSpec, spec).max_draft),
            options.max_num_seqs,
            setup.faults(planned, "rows run without drafts", True),
        )
        for planned, spec in setup.active.specs(DRAFTERS)
    ]


def _own(
    setup: Setup,
    planned: PlannedPlugin,
    spec: ParticipantSpec,
    driven: DrivenPlugins,
    tokenizer: Callable[[], Tokenizer],
) -> Participant:
    """Make the engine half of a plugin."""
    config, active = setup.config, setup.active
    given = EngineSetup(
        name=planned.name,
        options=planned.options,
        block_size=config.block_size,
        bytes_per_block=setup.info.column_bytes,
        max_rows=config.options.scheduler.max_num_seqs,
        max_model_len=config.max_model_len,
        vocab_size=config.shape.vocab_size,
        overlap_depth=config.options.scheduler.overlap_depth,
        tokenizer=tokenizer,
        cached_tokens=setup.cached_tokens,
        chosen=driven.asked_by(planned, spec),
        settings=settings_of(config.options, planned, spec.settings),
        dumps=driven.dumps,
    )
    made: Participant = active.make(planned, given)
    made.name = planned.name
    if spec.parts is not None:
        made.parts = active.load(planned, spec.parts)
    return made


def settings_of(options: Options, planned: PlannedPlugin, names: tuple[str, ...]) -> Mapping[str, Any]:
    """Return the values of options that a participant names. Raises `PluginError` CORE-P132 for one it cannot have."""
    try:
        return asked.settings_of(options, names, SECTIONS)
    except LookupError as error:
        text = f"participant {planned.owner} cannot have the setting '{error.args[0]}' of the engine."
        raise PluginError("CORE-P132", text) from None
