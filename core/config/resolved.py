"""The resolved configuration: frozen, complete, and plain enough to travel to a child process as JSON."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, model_validator

from core.api.kinds import Kind
from core.api.shapes import ModelShape
from core.api.verdict import ProbeResult
from core.api.weights import CheckpointInfo, ModelFiles
from core.config.section_values import RECEIVED, SectionValues
from core.config.sections import plugin_sections
from core.options.engine import KVOptions, RuntimeOptions, SchedulerOptions
from core.options.model import HubOptions, ModelOptions
from core.options.section import OptionsSection
from core.options.server import ServerOptions
from core.plugins.defined import defined_kinds
from core.plugins.kinds import (
    ATTENTION,
    CHAT_TEMPLATE,
    DRAFTER,
    EXECUTOR,
    IO_PROCESSOR,
    KERNEL,
    KV_CONNECTOR,
    LOADER,
    LOGITS,
    MODEL,
    PARTICIPANT,
    PLATFORM,
    QUANTIZATION,
    ROUTE,
    SCHEDULER,
    SOURCE,
    STAT_SINK,
    STRUCTURED_OUTPUT,
    TOOL_PARSER,
    TOOL_SERVER,
    WEIGHT_STORE,
    WEIGHT_TRANSFER,
)
from core.plugins.plan import PluginPlan


class SelectOptions(OptionsSection):
    """Explicit choices of plugins: name, name@distribution, or a list of which the first that can serve is taken."""

    # Besides those below there are the options of the kinds that installed plugins define.
    model_config = ConfigDict(frozen=True, extra="allow")

    platform: str | None = Field(None, description=PLATFORM.help)
    attention_backend: str | None = Field(None, description=ATTENTION.help)
    quantization: str | None = Field(None, description=QUANTIZATION.help)
    model_impl: str | None = Field(None, description=MODEL.help)
    model_source: str | None = Field(None, description=SOURCE.help)
    load_format: str | None = Field(None, description=LOADER.help)
    executor: str | None = Field(None, description=EXECUTOR.help)
    scheduler_policy: str | None = Field(None, description=SCHEDULER.help)
    tool_parser: str | None = Field(None, description=TOOL_PARSER.help)
    reasoning_parser: str | None = Field(
        None, description="Parser of the reasoning, where the tool parser does not read it; none by default."
    )
    kv_connector: list[str] = Field([], description=KV_CONNECTOR.help)
    weight_transfer: str | None = Field(None, description=WEIGHT_TRANSFER.help)
    weight_store: str | None = Field(None, description=WEIGHT_STORE.help)
    structured_output: str | None = Field(None, description=STRUCTURED_OUTPUT.help)
    drafter: str | None = Field(None, description=DRAFTER.help)
    participant: list[str] = Field([], description=PARTICIPANT.help)
    logits_processor: list[str] = Field([], description=LOGITS.help)
    stat_sink: list[str] = Field([], description=STAT_SINK.help)
    io_processor: str | None = Field(None, description=IO_PROCESSOR.help)
    route: list[str] = Field([], description=ROUTE.help)
    chat_template_engine: str | None = Field(None, description=CHAT_TEMPLATE.help)
    tool_client: str | None = Field(None, description=TOOL_SERVER.help)
    kernel: list[str] = Field([], description=KERNEL.help)
    disable_plugin: list[str] = Field(
        [], description="Plugins never to use: name, kind:name, name@distribution or distribution."
    )
    plugins: list[str] = Field([], description="Plugins that may take part unnamed: all (default), none, or names.")
    plugin_file: list[str] = Field([], description="Python files that are plugins (__core_drivers__, @hookimpl).")
    plugins_lock: str | None = Field(None, description="Lock file (`core plugins lock`) that the plugins must match.")
    strict: bool = Field(
        False,
        description="Whether a difference from the lock file, or a hook module that cannot be used, stops the start.",
    )

    def __getattr__(self, name: str) -> Any:
        """Return the default of an option of a defined kind that nobody has set."""
        try:
            return super().__getattr__(name)  # type: ignore[misc]  # pydantic has it, and hides it from checkers
        except AttributeError:
            kind = None if name.startswith("_") else _defined(name)
            if kind is None:
                raise
            return [] if kind.many else None

    @model_validator(mode="after")
    def _known(self) -> SelectOptions:
        """Refuse what is no option of a defined kind either."""
        for name, value in (self.model_extra or {}).items():
            kind = _defined(name)
            if kind is None:
                raise ValueError(f"there is no option '{name}'")
            fits = _is_names(value) if kind.many else value is None or isinstance(value, str)
            if not fits:
                raise ValueError(f"'{name}' takes {'names' if kind.many else 'a name'}")
        return self


def _is_names(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _defined(option: str) -> Kind | None:
    """Return the kind that a plugin defines and that this option chooses among."""
    return next((kind for kind in defined_kinds().values() if kind.option == option), None)


class Options(OptionsSection):
    """Everything a user can set: `<section>.<name>`; flag `--<name>`, environment `CORE_<NAME>`.

    Besides the sections below there are those that installed plugins declare (`core.config.sections`), as
    `SectionValues` among pydantic's extra fields.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    model: ModelOptions = ModelOptions()
    hub: HubOptions = HubOptions()
    kv: KVOptions = KVOptions()
    scheduler: SchedulerOptions = SchedulerOptions()
    select: SelectOptions = SelectOptions()
    runtime: RuntimeOptions = RuntimeOptions()
    server: ServerOptions = ServerOptions()

    def __getattr__(self, name: str) -> Any:
        """Return the defaults of a plugin's section of which nobody has set anything."""
        try:
            return super().__getattr__(name)  # type: ignore[misc]  # pydantic has it, and hides it from checkers
        except AttributeError:
            section = None if name.startswith("_") else plugin_sections().get(name)
            if section is None:
                raise
            return SectionValues.of(section, {})

    def __eq__(self, other: object) -> bool:
        """A section of which nothing is given is as one of which the defaults are."""
        if super().__eq__(other):
            return True
        return isinstance(other, Options) and BaseModel.__eq__(self.complete(), other.complete())

    @model_validator(mode="after")
    def _checked(self, info: ValidationInfo) -> Options:
        """Hold what is given for plugins' sections against their models; from another process it comes checked."""
        received = isinstance(info.context, Mapping) and info.context.get(RECEIVED) is True
        extra = self.model_extra or {}
        for name, values in extra.items():
            if isinstance(values, SectionValues):
                continue
            section = None if received else plugin_sections().get(name)
            if not isinstance(values, Mapping) or not (received or section):
                raise ValueError(f"there is no section of options '{name}'")
            extra[name] = SectionValues.of(section, values) if section else SectionValues.model_construct(**values)
        return self

    def complete(self) -> Options:
        """Return the options with every section of plugins in place, for processes that ask no plugin for it."""
        found = {name: SectionValues.of(one, {}) for name, one in plugin_sections().items()}
        missing = {name: values for name, values in found.items() if name not in (self.model_extra or {})}
        return self.model_copy(update=missing) if missing else self

    def names_of(self, section: str) -> Collection[str]:
        """Return the names of a section's options; nothing where there is no such section."""
        if section not in type(self).model_fields:
            values = getattr(self, section).values if section in plugin_sections() else {}
            return frozenset(values)
        return frozenset(type(getattr(self, section)).model_fields)

    def plugin_section_of(self, option: str) -> str | None:
        """Return which section of plugins' has an option of this name; None: none has."""
        for name, values in (self.model_extra or {}).items():
            if option in values.values:
                return name
        declared = plugin_sections().items()
        return next((name for name, one in declared if any(option == field.name for field in one.fields)), None)

    def with_values(self, section: str, given: Mapping[str, Any]) -> Options:
        """Return the options with a section of which this is given, and nothing else. Raises `ValidationError`."""
        mine = plugin_sections().get(section)
        new = SectionValues.of(mine, given) if mine else type(getattr(self, section)).model_validate(given)
        return self.model_copy(update={section: new})

    def with_memory_fraction(self, fraction: float | None) -> Options:
        """Return the options with another default of `kv.memory_fraction`; themselves for None, and where it is set."""
        if fraction is None or "memory_fraction" in self.kv.model_fields_set:
            return self
        kv = self.kv.model_copy(update={"memory_fraction": fraction})
        kv.model_fields_set.discard("memory_fraction")  # the user has not set it
        return self.model_copy(update={"kv": kv})


class EngineConfig(OptionsSection):
    """Configuration of the engine process: options, checkpoint facts and the plugin plan, all decided by the parent.

    Attributes:
        dtype, kv_dtype: Concrete dtypes.
        max_model_len, block_size, step_tokens: Concrete sizes, in tokens; the last is the budget of a step.
        shortens: Whether `max_model_len` is lowered to what the KV cache holds.
        probe: What the platform found of the device.
        device_index: Which of the platform's devices, from 0.
        environment: What the platform wants to be set where its libraries are loaded; the user's own settings win.
        task: What the engine does for its requests: `generate`, or the name of the plan's task plugin.
        task_data: What that plugin's halves go by, as plain data.
        decodes: Whether requests get tokens one by one.
    """

    options: Options
    files: ModelFiles
    checkpoint: CheckpointInfo
    shape: ModelShape
    plan: PluginPlan
    dtype: str
    kv_dtype: str
    max_model_len: int
    block_size: int
    step_tokens: int = 2048
    shortens: bool = False
    probe: ProbeResult = ProbeResult(available=True)
    device_index: int = 0
    environment: dict[str, str] = Field(default_factory=dict)
    task: str = "generate"
    task_data: dict[str, Any] = Field(default_factory=dict)
    decodes: bool = True

    @classmethod
    def received(cls, text: str | bytes) -> EngineConfig:
        """Return the configuration that another process wrote as JSON."""
        return cls.model_validate_json(text, context={RECEIVED: True})

    @property
    def state_interval(self) -> int:
        """Tokens from one snapshot of recurrent states to the next, in whole blocks."""
        return -(-self.options.kv.state_interval // self.block_size) * self.block_size

    def narrowed(self, max_num_seqs: int | None) -> EngineConfig:
        """Return the configuration with fewer rows; itself where that is None or no fewer."""
        scheduler = self.options.scheduler
        if max_num_seqs is None or max_num_seqs >= scheduler.max_num_seqs:
            return self
        fewer = self.options.model_copy(
            update={"scheduler": scheduler.model_copy(update={"max_num_seqs": max_num_seqs})}
        )
        return self.model_copy(update={"options": fewer})

    def shortened(self, max_model_len: int | None) -> EngineConfig:
        """Return the configuration with a lower `max_model_len`; itself where that is None or not lower."""
        if max_model_len is None or max_model_len >= self.max_model_len:
            return self
        return self.model_copy(update={"max_model_len": max_model_len})
