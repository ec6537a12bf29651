"""What the kinds of plugin are called in messages, and where a user chooses each of them."""

from __future__ import annotations

from dataclasses import dataclass

HOOKS_GROUP = "core.plugins"


@dataclass(frozen=True, slots=True)
class Kind:
    """One entry-point group.

    Attributes:
        group: The entry-point group.
        label: The kind in a sentence ("attention backend").
        option: Field of `SelectOptions` that chooses it; empty for a kind that is never chosen by name.
        needed: Whether every start has one; the others take part only when they are named.
        also: Further fields that choose one of the kind, for a part of its work.
    """

    group: str
    label: str
    option: str = ""
    needed: bool = False
    also: tuple[str, ...] = ()

    @property
    def options(self) -> tuple[str, ...]:
        """Every field of `SelectOptions` that chooses it."""
        return (self.option, *self.also) if self.option else ()

    @property
    def flag(self) -> str:
        """The command-line flag that chooses it, or an empty string."""
        return f"--{self.option.replace('_', '-')}" if self.option else ""


PLATFORM = Kind("core.platforms", "platform", "platform", needed=True)
ATTENTION = Kind("core.attention_backends", "attention backend", "attention_backend", needed=True)
QUANTIZATION = Kind("core.quantization", "quantization method", "quantization", needed=True)
MODEL = Kind("core.models", "model implementation", "model_impl", needed=True)
LOADER = Kind("core.weight_loaders", "weight loader", "load_format", needed=True)
SOURCE = Kind("core.model_sources", "model source", "model_source", needed=True)
EXECUTOR = Kind("core.executors", "executor", "executor", needed=True)
SCHEDULER = Kind("core.schedulers", "scheduling policy", "scheduler_policy", needed=True)
TOOL_PARSER = Kind("core.tool_parsers", "tool parser", "tool_parser", also=("reasoning_parser",))
KV_CONNECTOR = Kind("core.kv_connectors", "KV connector", "kv_connector")
WEIGHT_TRANSFER = Kind("core.weight_transfer", "weight transfer", "weight_transfer")
WEIGHT_STORE = Kind("core.weight_stores", "weight store", "weight_store")
KERNEL = Kind("core.kernels", "kernel", "kernel")
LOGITS = Kind("core.logits", "logits processor", "logits_processor")
STAT_SINK = Kind("core.stat_sinks", "stat sink", "stat_sink")
IO_PROCESSOR = Kind("core.io_processors", "I/O processor", "io_processor")
ROUTE = Kind("core.routes", "route plugin", "route")
COMMAND = Kind("core.commands", "command")
TOOL_SERVER = Kind("core.tool_servers", "tool-server client", "tool_client")
STRUCTURED_OUTPUT = Kind("core.structured_output", "structured-output backend", "structured_output")
DRAFTER = Kind("core.drafters", "drafter", "drafter")
PARTICIPANT = Kind("core.participants", "participant", "participant")
HOOKS = Kind(HOOKS_GROUP, "hook plugin")

KINDS: dict[str, Kind] = {
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
        KV_CONNECTOR,
        WEIGHT_TRANSFER,
        WEIGHT_STORE,
        KERNEL,
        LOGITS,
        STAT_SINK,
        IO_PROCESSOR,
        ROUTE,
        COMMAND,
        TOOL_SERVER,
        STRUCTURED_OUTPUT,
        DRAFTER,
        PARTICIPANT,
        HOOKS,
    )
}
"""Every kind by its entry-point group."""


PARTICIPATING = (KV_CONNECTOR, DRAFTER, PARTICIPANT)
"""Kinds whose plugins take part in steps and have figures of their own."""


def kind_chosen_by(option: str) -> Kind | None:
    """Return the kind of which a field of `SelectOptions` chooses plugins; None for any other field."""
    return next((kind for kind in KINDS.values() if option in kind.options), None)


def kind_of(group: str) -> Kind:
    """Return the kind of `group`; a group that this core does not know is labelled by its own name."""
    return KINDS.get(group) or Kind(group, group)
