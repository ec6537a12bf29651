"""Kinds of plugin: one module for each of core's, and the table of them; what plugins define comes from `defined`.

Everything else that goes by kind (contracts, API integers, options, templates, the kit's areas, pages) follows from
these objects.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from core.api.kinds import Kind
from core.plugins.kinds.attention_backends import ATTENTION
from core.plugins.kinds.chat_templates import CHAT_TEMPLATE
from core.plugins.kinds.commands import COMMAND
from core.plugins.kinds.drafters import DRAFTER
from core.plugins.kinds.executors import EXECUTOR
from core.plugins.kinds.flag_dialects import FLAG_DIALECT
from core.plugins.kinds.hooks import HOOKS
from core.plugins.kinds.io_processors import IO_PROCESSOR
from core.plugins.kinds.kernels import KERNEL
from core.plugins.kinds.kinds import KIND
from core.plugins.kinds.kv_connectors import KV_CONNECTOR
from core.plugins.kinds.logits import LOGITS
from core.plugins.kinds.model_sources import SOURCE
from core.plugins.kinds.models import MODEL
from core.plugins.kinds.option_sections import OPTION_SECTION
from core.plugins.kinds.participants import PARTICIPANT
from core.plugins.kinds.platforms import PLATFORM
from core.plugins.kinds.quantization import QUANTIZATION
from core.plugins.kinds.routes import ROUTE
from core.plugins.kinds.schedulers import SCHEDULER
from core.plugins.kinds.stat_sinks import STAT_SINK
from core.plugins.kinds.structured_output import STRUCTURED_OUTPUT
from core.plugins.kinds.tasks import TASK
from core.plugins.kinds.tool_parsers import TOOL_PARSER
from core.plugins.kinds.tool_servers import TOOL_SERVER
from core.plugins.kinds.weight_loaders import LOADER
from core.plugins.kinds.weight_stores import WEIGHT_STORE
from core.plugins.kinds.weight_transfer import WEIGHT_TRANSFER

__all__ = [
    "ATTENTION",
    "CHAT_TEMPLATE",
    "COMMAND",
    "DRAFTER",
    "EXECUTOR",
    "FLAG_DIALECT",
    "HOOKS",
    "HOOKS_GROUP",
    "IO_PROCESSOR",
    "KERNEL",
    "KIND",
    "KINDS",
    "KINDS_GROUP",
    "KV_CONNECTOR",
    "Kind",
    "LOADER",
    "LOGITS",
    "MODEL",
    "OPTION_SECTION",
    "PARTICIPANT",
    "PARTICIPATING",
    "PLATFORM",
    "QUANTIZATION",
    "ROUTE",
    "SCHEDULER",
    "SOURCE",
    "STAT_SINK",
    "STRUCTURED_OUTPUT",
    "TASK",
    "TOOL_PARSER",
    "TOOL_SERVER",
    "WEIGHT_STORE",
    "WEIGHT_TRANSFER",
    "every_kind",
    "kind_chosen_by",
    "kind_of",
]

HOOKS_GROUP = HOOKS.group
KINDS_GROUP = KIND.group
"""Group of the kinds that plugins define: an entry point is named like the group that it defines."""

KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        kind.group: kind
        for kind in (
            PLATFORM,
            ATTENTION,
            QUANTIZATION,
            MODEL,
            LOADER,
            SOURCE,
            EXECUTOR,
            SCHEDULER,
            TOOL_PARSER,
            CHAT_TEMPLATE,
            KV_CONNECTOR,
            WEIGHT_TRANSFER,
            WEIGHT_STORE,
            KERNEL,
            LOGITS,
            STAT_SINK,
            IO_PROCESSOR,
            ROUTE,
            COMMAND,
            FLAG_DIALECT,
            OPTION_SECTION,
            TOOL_SERVER,
            STRUCTURED_OUTPUT,
            DRAFTER,
            PARTICIPANT,
            TASK,
            HOOKS,
        )
    }
)
"""Every kind of core's by its entry-point group, in the order in which they are told."""

PARTICIPATING = (KV_CONNECTOR, DRAFTER, PARTICIPANT)
"""Kinds whose plugins take part in steps and have figures of their own."""


def every_kind() -> Mapping[str, Kind]:
    """Return every kind by its group: core's, then those that installed plugins define."""
    from core.plugins.defined import defined_kinds

    return MappingProxyType({**KINDS, **defined_kinds()})


def kind_chosen_by(option: str) -> Kind | None:
    """Return the kind of which an option chooses plugins; None for any other option."""
    mine = next((kind for kind in KINDS.values() if option in kind.options), None)
    if mine is not None:
        return mine
    from core.plugins.defined import defined_kinds

    return next((kind for kind in defined_kinds().values() if option in kind.options), None)


def kind_of(group: str) -> Kind:
    """Return the kind of `group`; a group that nothing here knows is labelled by its own name."""
    if group in KINDS:
        return KINDS[group]
    if group == KINDS_GROUP:
        return KIND
    from core.plugins.defined import defined_kinds

    return defined_kinds().get(group) or Kind(group=group, label=group)
