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
    """

    group: str
    label: str
    option: str = ""

    @property
    def flag(self) -> str:
        """The command-line flag that chooses it, or an empty string."""
        return f"--{self.option.replace('_', '-')}" if self.option else ""


PLATFORM = Kind("core.platforms", "platform", "platform")
ATTENTION = Kind("core.attention_backends", "attention backend", "attention_backend")
QUANTIZATION = Kind("core.quantization", "quantization method", "quantization")
MODEL = Kind("core.models", "model implementation", "model_impl")
LOADER = Kind("core.weight_loaders", "weight loader", "load_format")
SOURCE = Kind("core.model_sources", "model source")
EXECUTOR = Kind("core.executors", "executor", "executor")
SCHEDULER = Kind("core.schedulers", "scheduling policy", "scheduling_policy")
TOOL_PARSER = Kind("core.tool_parsers", "tool parser", "tool_parser")
KV_CONNECTOR = Kind("core.kv_connectors", "KV connector", "kv_connector")
WEIGHT_TRANSFER = Kind("core.weight_transfer", "weight transfer", "weight_transfer")
KERNEL = Kind("core.kernels", "kernel", "kernel")
LOGITS = Kind("core.logits", "logits processor", "logits_processor")
STAT_SINK = Kind("core.stat_sinks", "stat sink", "stat_sink")
ROUTE = Kind("core.routes", "route plugin", "route")
COMMAND = Kind("core.commands", "command")
STRUCTURED_OUTPUT = Kind("core.structured_output", "structured-output backend", "structured_output")
DRAFTER = Kind("core.drafters", "drafter")
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
        KERNEL,
        LOGITS,
        STAT_SINK,
        ROUTE,
        COMMAND,
        STRUCTURED_OUTPUT,
        DRAFTER,
        HOOKS,
    )
}
"""Every kind by its entry-point group."""


def kind_of(group: str) -> Kind:
    """Return the kind of `group`; a group that this core does not know is labelled by its own name."""
    return KINDS.get(group) or Kind(group, group)
