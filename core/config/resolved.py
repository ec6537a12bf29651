"""The resolved configuration: frozen, complete, and plain enough to travel to a child process as JSON."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from core.api.kinds import Kind
from core.api.shapes import ModelShape
from core.api.verdict import ProbeResult
from core.api.weights import CheckpointInfo, ModelFiles
from core.config.section_values import RECEIVED, SectionValues
from core.config.sections import plugin_sections
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

FITTING = -1
"""`max_model_len` that leaves it to core: what fits into the KV cache, at most what the model was made for."""


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ModelOptions(_Section):
    """Which model, and how it is read."""

    model: str | None = Field(
        None, description="Model reference: alias, file, directory or hub id; none: the default model."
    )
    served_model_name: str | None = Field(
        None, min_length=1, description="Name the API answers to; default: the model's own."
    )
    revision: str | None = Field(None, description="Revision of a hub id.")
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field("auto", description="Compute dtype.")
    max_model_len: int | None = Field(
        None,
        ge=-1,
        description="Longest prompt plus output, in tokens; auto or -1: what fits into the KV cache; "
        "default: the model's own, in `LLM` and `core run` auto.",
    )
    hf_overrides: dict[str, Any] = Field(
        {},
        description="Values that replace those of the model's configuration (config.json); null takes one out. "
        "Repeatable.",
    )
    rope_scaling: dict[str, Any] = Field(
        {}, description="Rotary scaling in place of the model's own: `rope_type` and its parameters, as in config.json."
    )
    chat_template: str | None = Field(
        None, description="Chat template that replaces the model's own: a file, a name (as `chatml`), or its source."
    )
    chat_template_content_format: Literal["auto", "string", "openai"] = Field(
        "auto", description="Message contents as texts or as lists of parts; auto: as the template looks."
    )
    default_chat_template_kwargs: dict[str, Any] = Field(
        {}, description="Variables of the chat template where a request does not set them."
    )
    max_chars_per_token: int | None = Field(
        None,
        ge=0,
        description="Longer texts than this per token are refused before they are tokenised; 0: none are; "
        "default: the longest token of the vocabulary.",
    )
    seed: int = Field(0, description="Seed of unseeded sampling.")
    runner: Literal["auto", "generate", "pooling"] = Field(
        "auto", description="Whether the model generates tokens or gives vectors; auto: what it was made for."
    )
    convert: Literal["auto", "none", "embed"] = Field(
        "auto", description="embed: take embeddings from a model that was made to generate."
    )
    pooling: Literal["auto", "mean", "max", "cls", "last"] = Field(
        "auto", description="How a prompt's hidden states become one vector; auto: as the model's makers did."
    )

    @field_validator("max_model_len")
    @classmethod
    def _not_nothing(cls, value: int | None) -> int | None:
        if value == 0:
            raise ValueError("a context holds a token at least")
        return value


class HubOptions(_Section):
    """Where models come from that are not on this machine yet."""

    hf_token: str | None = Field(
        None,
        min_length=1,
        # It becomes an HTTP header; and a model's id that slipped into its place is refused.
        pattern=r"^[!-.0-~]+$",
        repr=False,
        description="Access token of the model hub; true: the one stored by `hf auth login`; false: none. "
        "HF_TOKEN is used by default, and does not show in a process list.",
    )
    offline: bool = Field(
        False, description="Never ask the hub, take models from its cache; as HF_HUB_OFFLINE=1 in the environment."
    )
    download_dir: str | None = Field(
        None, min_length=1, description="Folder of the hub's cache; default: HF_HUB_CACHE, or `hub` in HF_HOME."
    )

    @field_validator("hf_token", mode="before")
    @classmethod
    def _as_text(cls, value: Any) -> Any:
        """In a file and in Python, `true` is no text."""
        return str(value).lower() if isinstance(value, bool) else value


class KVOptions(_Section):
    """The paged KV cache."""

    kv_memory: str | None = Field(None, description="KV cache size: 2GiB, 512MiB or bytes.")
    memory_fraction: float = Field(
        0.5,
        gt=0,
        le=1,
        description="Fraction of free memory for the KV cache when no size is given; on a device with memory of its "
        "own (default there: the platform's) of all its memory, which weights and steps share with the cache.",
    )
    block_size: int | None = Field(None, ge=1, le=1024, description="Tokens per KV block; default: the platform's.")
    num_blocks: int | None = Field(None, ge=2, description="Exact number of KV blocks; overrides the memory options.")
    kv_dtype: Literal[
        "auto", "float32", "bfloat16", "float16", "fp8", "fp8_e4m3", "fp8_e5m2", "int8", "float8_e4m3fn", "float8_e5m2"
    ] = Field(
        "auto",
        description="Dtype of the KV cache; auto: as the checkpoint's kv_cache_scheme says, else the model's dtype; "
        "fp8 is fp8_e4m3.",
    )
    prefix_caching: bool = Field(True, description="Share the KV blocks of equal prefixes.")
    state_interval: int = Field(
        512,
        ge=1,
        description="Tokens from one snapshot of a request's recurrent states to the next, rounded up to whole blocks: "
        "where prefix hits of models with such states end.",
    )
    state_snapshots: int | None = Field(
        None,
        ge=0,
        description="Snapshots of recurrent states; default: one for each interval that the cache holds.",
    )
    hash_seed: str | None = Field(
        None, description="Secret text that makes block hashes equal in every start, for KV stores that outlive it."
    )

    def concrete_dtype(self, dtype: str, demanded: str | None = None) -> str:
        """Return the dtype of the cache as attention backends name it, given the compute dtype.

        Args:
            demanded: What the checkpoint asks for, if anything.
        """
        e4m3, e5m2 = "float8_e4m3fn", "float8_e5m2"
        named = {"auto": demanded or dtype, "fp8": e4m3, "fp8_e4m3": e4m3, "fp8_e5m2": e5m2}
        return named.get(self.kv_dtype, self.kv_dtype)


class SchedulerOptions(_Section):
    """How steps are filled."""

    max_num_seqs: int = Field(256, ge=1, le=16384, description="Requests that may run at once.")
    max_num_batched_tokens: int | None = Field(
        None, ge=1, description="Token budget of a step; default: the platform's."
    )
    max_chunk: int | None = Field(None, ge=1, description="Most prompt tokens of one request in a step.")
    max_itl_ms: float = Field(
        200.0,
        ge=0,
        le=60000,
        description="Milliseconds that a step may take while requests are being answered; prompts run in chunks that "
        "fit. 0: any. Off in `LLM` and, unless set, in `core run-batch`.",
    )
    overlap_depth: int = Field(1, ge=0, le=4, description="Steps launched ahead of the one being settled.")
    draft_tokens: int = Field(
        4, ge=1, le=64, description="Most tokens that the drafter guesses for a request in a step (`--drafter`)."
    )
    max_waiting: int = Field(4096, ge=1, description="Requests that may wait; more are refused with 503.")


class SelectOptions(_Section):
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


class RuntimeOptions(_Section):
    """Threads and processes."""

    threads: int | None = Field(None, ge=1, description="Compute threads; default: physical cores.")
    threads_bind: str = Field(
        "auto",
        pattern=r"^(auto|none|\d+(-\d+)?(,\d+(-\d+)?)*)$",
        description="Processors for the compute threads: 0-3,8-11; auto: one memory node; none: any.",
    )
    graphs: Literal["auto", "none", "decode", "full"] = Field(
        "auto",
        description="Which steps run by the platform's graphs: none; decode: those of one token a row; full: also "
        "those with prompts of a few tokens; auto: decode where graphs are captured at the start, else full.",
    )
    compile: bool = Field(
        False, description="Compile what the model does between its attention layers; a plugin carries it out."
    )
    start_timeout: float = Field(600.0, gt=0, description="Seconds the engine may take to start.")
    engine_restarts: int = Field(
        3, ge=0, le=1000, description="Restarts of a dead engine within ten minutes; more end the server; 0: none."
    )
    engine_hang_timeout: float = Field(
        300.0, ge=0, description="Seconds after which an engine that does not move is ended; 0: never."
    )
    plugin_options: dict[str, dict[str, Any]] = Field({}, description="Options of plugins: name -> key -> value.")


class ServerOptions(_Section):
    """The HTTP server."""

    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(8000, ge=0, le=65535, description="Port to listen on; 0 picks a free one.")
    uds: str | None = Field(None, description="Unix socket to listen on instead.")
    api_key: str | None = Field(None, min_length=1, description="Key that requests must carry.")
    admin_api_key: str | None = Field(
        None,
        min_length=1,
        description="Key of the admin routes; without one they serve local clients of a server without keys.",
    )
    allowed_origins: list[str] = Field(
        [], description="Web pages that may call the API from a browser: https://HOST[:PORT], or * for all."
    )
    allowed_methods: list[str] = Field(["*"], description="HTTP methods that these pages may use.")
    allowed_headers: list[str] = Field(["*"], description="Headers that these pages may send.")
    allow_credentials: bool = Field(False, description="Let these pages send cookies and client certificates.")
    ssl_certfile: str | None = Field(
        None, min_length=1, description="Certificate chain in PEM form, maybe with its key: the server speaks https."
    )
    ssl_keyfile: str | None = Field(None, min_length=1, description="The certificate's private key in PEM form.")
    ssl_ca_certs: str | None = Field(
        None, min_length=1, description="Authorities whose certificates clients may bring, in PEM form."
    )
    ssl_cert_reqs: int = Field(
        0, ge=0, le=2, description="Whether clients bring a certificate: 0 no, 1 if they like, 2 they must."
    )
    ssl_ciphers: str | None = Field(
        None, min_length=1, description="Ciphers of TLS 1.2, as OpenSSL lists them; default: Python's."
    )
    enable_ssl_refresh: bool = Field(False, description="Use new certificates as soon as their files change.")
    root_path: str = Field(
        "",
        pattern=r"^/?([A-Za-z0-9._~-]+(/[A-Za-z0-9._~-]+)*/?)?$",
        description="Path below which a reverse proxy shows the server, as /llm.",
    )
    max_body_bytes: int = Field(32 * 2**20, ge=1024, description="Largest request body.")
    max_sockets: int = Field(1024, ge=0, description="Web sockets that may be open; more are refused with 503.")
    drain_timeout: float = Field(30.0, ge=0, description="Seconds that running requests get after SIGTERM.")
    log_requests: bool = Field(False, description="Log one line per request.")
    public_metrics: bool = Field(False, description="Show /metrics to clients without a key.")
    metrics_compat: str = Field(
        "none",
        description="Show the figures of /metrics a second time, by the names of another server: a plugin's name, as "
        "--route takes them; none: once.",
    )
    strict_fields: bool = Field(False, description="Refuse requests with fields that would be ignored.")
    trust_request_chat_template: bool = Field(False, description="Run chat templates that requests bring along.")
    stream_interval: int = Field(1, ge=1, le=1024, description="Tokens that a stream gathers per event.")

    @field_validator("root_path")
    @classmethod
    def _as_prefix(cls, value: str) -> str:
        """A prefix begins with a slash and ends where the paths of the server begin."""
        return f"/{value.strip('/')}".rstrip("/")


class Options(_Section):
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


class EngineConfig(_Section):
    """What the engine process starts from: options, checkpoint facts and the plugin plan, all decided by the parent.

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
    environment: dict[str, str] = {}
    task: str = "generate"
    task_data: dict[str, Any] = {}
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
