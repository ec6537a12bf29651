"""Descriptors: what a plugin declares about itself, as data.

An entry point of a driver group names a descriptor in a torch-free *manifest* module. Core lists,
filters and scores descriptors without importing any implementation; `impl` is imported for the
winner alone, in the process that needs it.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from core.api.kernels import DimRule, KernelRequest, check_kernel, kernel_faults
from core.api.record import EMPTY, Between, Record
from core.api.sampling import SamplingField
from core.api.sampling_table import SAMPLING_FIELDS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from core.api.verdict import Verdict

Band = Literal[1, 2, 3, 4]
"""4 exact hardware match, 3 same device type and tuned, 2 generic, 1 reference."""


class Descriptor(Record):
    """Fields that every kind has.

    Attributes:
        name: Equals the entry-point name.
        impl: Dotted path `package.module:Attribute` of the implementation.
        api: The API integer of this kind that the plugin was written for (`core plugins api` lists them).
        summary: One line for listings.
        band: Coarse rank in automatic selection; see `Band`.
        priority: Tie-breaker inside a band, 0-100.
        maturity: Experimental plugins are never chosen automatically.
        requires: PEP 508 requirement strings checked before the import of `impl`.
        imports: Top-level modules that must be there before `impl` is imported, where several distributions bring one
            of that name.
        options: Dotted path of a pydantic model for the plugin's own options, or None. What is otherwise made without
            arguments is made with the options, as a mapping, if there is a model.
    """

    group: ClassVar[str] = ""

    name: str
    impl: str
    api: int
    summary: str
    band: Band = 2
    priority: Annotated[int, Between(0, 100)] = 50
    maturity: Literal["stable", "experimental", "reference"] = "stable"
    requires: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    options: str | None = None


class PlatformSpec(Descriptor):
    """A device runtime.

    Attributes:
        device_type: torch device type, for example `cpu`.
        probe: Dotted path of a torch-free function `() -> ProbeResult`; must never raise.
        dtypes: Compute dtypes it runs well, best first.
        block_size: Preferred tokens per KV block.
        step_tokens: Preferred token budget of a step: enough for products at full speed, and no more, since everybody
            who is being answered waits for the step. Unless the user sets a limit, decoding requests come on top of it.
        preferences: Score adjustments `"<group>:<name>" -> points`; never a hard choice. A probe may add some.
        memory_fraction: Part of the memory for the KV cache where the user names none; None: core's default. On a
            device with memory of its own it is a part of the whole, which weights and steps share.
        environment: Dotted path of a torch-free function `(threads: int | None) -> dict[str, str]`, or None: the
            variables that the device's libraries read when they are loaded (not those that are read when a process
            begins). Set in the process that computes, unless the user set them; `threads` is the user's choice. May be
            called before `probe`, so it must work without the device.
    """

    group: ClassVar[str] = "core.platforms"

    device_type: str
    probe: str
    dtypes: tuple[str, ...]
    block_size: int = 16
    step_tokens: int = 2048
    preferences: Mapping[str, int] = EMPTY
    memory_fraction: float | None = None
    environment: str | None = None


class AttentionSpec(Descriptor):
    """An attention backend's capabilities as data.

    Attributes:
        devices: Device types it runs on.
        dtypes: Query / output dtypes.
        kv_dtypes: Dtypes of the KV cache, of `float32`, `bfloat16`, `float16`, `float8_e4m3fn`, `float8_e5m2` and
            `int8` (with scales that the backend keeps inside its blocks).
        head_dims: Allowed head dimensions; None means any.
        block_multiple: The KV block size must be a multiple of this many tokens.
        features: Of `sliding_window`, `softcap`, `alibi`, `alibi_root`, `sinks`, `chunked`, `value_dim`, `latent`,
            `picks`, `compressed`, ...; a model that needs another is refused. With `sinks` each of its layers is a
            `TakesSinks`, with `rotary` a `StoresRotated`. A backend with `latent` is a `Latent`, with `picks` also a
            `Picks`, one with `compressed` a `Compressed` and a `Picks`, one with `bidirectional` an `Encodes`, with
            `position_bias` its layers add `AttentionSite.bias`, and with `replayable` it is a `Replayable`: steps run
            by the graphs of platforms whose graphs are `fixed`, and with `replayable_prompts` besides also steps with
            prompts.
        refine: Dotted path of a torch-free `(AttentionRequest, ProbeResult) -> Verdict`, or None.
        kv_managers: For kinds of KV spec of the backend's own: kind -> dotted path of a torch-free `KVManager`.
    """

    group: ClassVar[str] = "core.attention_backends"

    devices: frozenset[str]
    dtypes: frozenset[str]
    kv_dtypes: frozenset[str]
    head_dims: frozenset[int] | None = None
    block_multiple: int = 1
    features: frozenset[str] = frozenset()
    refine: str | None = None
    kv_managers: Mapping[str, str] = EMPTY


class AttentionRequest(Record):
    """Requirements of a model on its attention backend. All layers of one KV group share them.

    Attributes:
        device_type: torch device type.
        dtype, kv_dtype: Dtypes of the computation and of the KV cache.
        head_dim, num_heads, num_kv_heads: Attention geometry.
        head_dims: Sizes of heads of all layers, where some have others than `head_dim`.
        block_size: Tokens per KV block.
        features: What the layers need, as in `AttentionSpec.features`.
        latents: With `latent`: sizes of latents and of rotated keys, a pair for each kind of layers; empty where they
            are not known.
    """

    device_type: str
    dtype: str
    kv_dtype: str
    head_dim: int
    num_heads: int
    num_kv_heads: int
    block_size: int
    features: frozenset[str] = frozenset()
    head_dims: frozenset[int] = frozenset()
    latents: frozenset[tuple[int, ...]] = frozenset()

    @property
    def sizes(self) -> frozenset[int]:
        """Sizes of heads that some layer has."""
        return self.head_dims or frozenset({self.head_dim})

    def check(self, spec: AttentionSpec) -> Verdict:
        """Hold this request against a backend's data and return every reason against it."""
        from core.api.verdict import Verdict  # importing a descriptor stays cheap

        missing = sorted(self.features - spec.features)
        surplus = frozenset() if spec.head_dims is None else self.sizes - spec.head_dims
        return Verdict.of(
            None if self.device_type in spec.devices else f"device {self.device_type} not in {_set(spec.devices)}",
            None if self.dtype in spec.dtypes else f"dtype {self.dtype} not in {_set(spec.dtypes)}",
            None if self.kv_dtype in spec.kv_dtypes else f"kv dtype {self.kv_dtype} not in {_set(spec.kv_dtypes)}",
            f"head_dim {min(surplus)} not in {_set(spec.head_dims or frozenset())}" if surplus else None,
            None
            if self.block_size % spec.block_multiple == 0
            else f"block size {self.block_size} is not a multiple of {spec.block_multiple}",
            f"lacks {', '.join(missing)}" if missing else None,
        )


def _set(values: frozenset[str] | frozenset[int]) -> str:
    return "{" + ", ".join(str(value) for value in sorted(values)) + "}"


class QuantSpec(Descriptor):
    """A quantization method.

    Attributes:
        methods: Values of a checkpoint's quantization method that it reads ("none" for plain weights).
        devices: Device types it runs on; `*` means any.
        dtypes: Activation dtypes.
        needs: Features the platform's probe must report (`ProbeResult.has`).
        on_request: It changes what the checkpoint says (rounds plain weights, for instance), so it is used only when
            the user names it.
        rounds: Those of its `methods` for whose checkpoints alone it is as if `on_request`; others it reads as they
            are.
        refine: Dotted path of a torch-free `(QuantRequest, ProbeResult) -> Verdict`, or None: which of a method's
            many forms (bits, groups, layouts) it reads. What it lets pass, the implementation must read.
        forms_of: Dotted path of a torch-free `(CheckpointInfo) -> Mapping[WeightForm, int]`, or None: the forms in
            which a checkpoint stores matrices, as far as its headers tell, each with the number of them (0: unknown).
            For reports, before anything is loaded; layers go by what the implementation says.
    """

    group: ClassVar[str] = "core.quantization"

    methods: frozenset[str]
    devices: frozenset[str] = frozenset({"*"})
    dtypes: frozenset[str] = frozenset({"float32", "bfloat16", "float16"})
    needs: frozenset[str] = frozenset()
    on_request: bool = False
    rounds: frozenset[str] = frozenset()
    refine: str | None = None
    forms_of: str | None = None

    def needs_request(self, method: str) -> bool:
        """Whether it is used for checkpoints of a method only when the user names it."""
        return self.on_request or method in self.rounds


class ModelSpec(Descriptor):
    """A model family.

    Attributes:
        architectures: Hugging Face architecture names it implements; those of a `fallback` may be globs.
        shape: Dotted path of a torch-free `(config: dict) -> ModelShape`.
        tasks: What its models do, of `generate`, `embed` and `classify`.
        chat_templates: Dotted path of a torch-free `ChatTemplates`, for checkpoints that come without one; or None.
        fallback: Empty for a family. Of a last resort: what running a model by it costs, in a phrase. It is chosen only
            for architectures that no family names, unless it is asked for, and the report says what it costs.
        graphs: Whether its steps may run by a platform's graphs or programs.
    """

    group: ClassVar[str] = "core.models"

    architectures: tuple[str, ...]
    shape: str
    tasks: frozenset[str] = frozenset({"generate"})
    chat_templates: str | None = None
    fallback: str = ""
    graphs: bool = True

    def takes(self, architecture: str) -> bool:
        """Whether it says that it implements an architecture."""
        if not self.fallback:
            return architecture in self.architectures
        return any(fnmatchcase(architecture, pattern) for pattern in self.architectures)


class WeightLoaderSpec(Descriptor):
    """A checkpoint format. `impl` is a `CheckpointReader` (torch-free to import; see `core.api.weights`).

    Attributes:
        patterns: File-name globs that mark a checkpoint of this format (`*.gguf`); matched against a file's
            name, or against the names inside a directory. The reader's `recognises` decides.
        invents: It reads facts alone; core makes up the values of all weights, equal each time. Used only when the
            user asks for it.
    """

    group: ClassVar[str] = "core.weight_loaders"

    patterns: tuple[str, ...]
    invents: bool = False


class ModelSourceSpec(Descriptor):
    """A way to turn a model reference into local files. `impl` is a `ModelSource` (torch-free).

    Attributes:
        aliases: References it answers without being asked further.
        default: Whether it also answers when the user names no model.
    """

    group: ClassVar[str] = "core.model_sources"

    aliases: tuple[str, ...] = ()
    default: bool = False


class ToolParserSpec(Descriptor):
    """A parser of tool calls (and reasoning) in a model's text output. `impl` is an `OutputParser` (torch-free).

    Attributes:
        markers: Strings of a chat template that suggest this format; used only to recommend it.
        reads: What it can read: `tools`, `reasoning` or both.
        special_tokens: Its tags are special tokens, which must therefore stay in the text. The same characters as
            ordinary text are then no tag.
        response_template: It reads the format that a checkpoint's tokenizer describes as its `response_template`.
        call_id: Ids of calls, with `{name}`, `{number}` (calls of the conversation, from 0) and `{random}` (hex).
    """

    group: ClassVar[str] = "core.tool_parsers"

    markers: tuple[str, ...] = ()
    reads: frozenset[str] = frozenset({"tools", "reasoning"})
    special_tokens: bool = False
    response_template: bool = False
    call_id: str = "call_{random:.24}"


class KVConnectorSpec(Descriptor):
    """An external store of KV blocks. `impl` is the engine side (torch-free).

    Attributes:
        worker_impl: Dotted path of the worker side.
        devices: Device types whose KV cache it can read and write; `*` means any.
    """

    group: ClassVar[str] = "core.kv_connectors"

    worker_impl: str
    devices: frozenset[str] = frozenset({"*"})


class WeightTransferSpec(Descriptor):
    """A transport of new weights into a running engine. `impl` is a `WeightReceiver`.

    Attributes:
        sender: Dotted path of the trainer-side class; importable without the engine.
    """

    group: ClassVar[str] = "core.weight_transfer"

    sender: str | None = None


class WeightStoreSpec(Descriptor):
    """A place on this machine for weights in the form that products use. `impl` is a `WeightStore`."""

    group: ClassVar[str] = "core.weight_stores"


class ExecutorSpec(Descriptor):
    """How workers are run. `impl` is an `Executor` (torch-free to import)."""

    group: ClassVar[str] = "core.executors"


class SchedulerPolicySpec(Descriptor):
    """Order of admission and choice of victim. `impl` is a `SchedulerPolicy` (torch-free)."""

    group: ClassVar[str] = "core.schedulers"


class KernelSpec(Descriptor):
    """A faster form of one operation.

    `impl` is a callable with the signature of the operation's reference form; where the operation multiplies with
    weights, a `Product`.

    Attributes:
        op: The operation: one of `core.api.OPS`, or one that plugins bring.
        devices: Device types it runs on; `*` means any.
        dtypes: Compute dtypes.
        dims: Which sizes it takes, by the dimension names of the operation.
        needs: Features the platform's probe must report (`ProbeResult.has`).
        forms: Of a product: globs of the weight forms that it multiplies with (`WeightForm.key`). Other kernels have
            none.
        refine: Dotted path of a torch-free `(KernelRequest, ProbeResult) -> Verdict`, or None: what these data cannot
            say. Asked for every layer, and before there are layers, without sizes, for the report.
        reference: Of an operation that is not core's: dotted path of its reference form, a function in plain torch, or
            a `Product` that takes every form. All kernels of the operation name the same; `impl` may be it. None for
            operations of core.
    """

    group: ClassVar[str] = "core.kernels"

    op: str
    devices: frozenset[str]
    dtypes: frozenset[str]
    dims: Mapping[str, DimRule] = EMPTY
    needs: frozenset[str] = frozenset()
    forms: tuple[str, ...] = ()
    refine: str | None = None
    reference: str | None = None

    @property
    def multiplies(self) -> bool:
        """Whether it is a product."""
        return bool(self.forms)

    def _faults(self) -> Iterable[str]:
        return kernel_faults(self.op, self.forms, self.reference)

    def check(self, request: KernelRequest) -> Verdict:
        """Hold this kernel against a request for its operation; every reason against it is returned."""
        return check_kernel(request, self.devices, self.dtypes, self.dims, self.forms)


class LogitsSpec(Descriptor):
    """A logits processor. `impl` is a `LogitsProcessor`.

    Attributes:
        fields: Sampling parameters that it adds: numbers and truth values with a default that has no effect. Requests
            say them by their names, in bodies of HTTP APIs, in `extra_args` and as flags; core checks their types and
            ranges, and gives them to the processor as `LogitsContext.numbers`.
        args: Names of a request's `extra_args` that it reads besides, which may be any plain data; others are refused
            if no processor reads them.
        check: Dotted path of a torch-free `(extra_args: Mapping) -> None` that raises `ValueError` for arguments it
            cannot use; the request is then refused before the engine sees it.
        drafts: `apply` goes by `output_counts` and the token pool, so that it may be asked for several positions of a
            row at once, of which some may turn out not to exist. Rows of a processor that cannot run no drafts.
    """

    group: ClassVar[str] = "core.logits"

    fields: tuple[SamplingField, ...] = ()
    args: tuple[str, ...] = ()
    check: str | None = None
    drafts: bool = False

    def _faults(self) -> Iterable[str]:
        for one in self.fields:
            if not one.simple or one.default is None:
                yield f"fields: {one.name} is no number or truth value with a default"
            if one.op is not None:
                yield f"fields: {one.name} is a row of core's operation {one.op}; a plugin's is one of its own"
            if one.name in SAMPLING_FIELDS:
                yield f"fields: {one.name} is a sampling parameter of core"
        names = [*(one.name for one in self.fields), *self.args]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            yield f"fields: {', '.join(twice)} is there twice"


class StatSinkSpec(Descriptor):
    """A receiver of figures. `impl` is a `StatSink` (torch-free)."""

    group: ClassVar[str] = "core.stat_sinks"


class IOProcessorSpec(Descriptor):
    """An I/O processor: data in, answers made of vectors out. `impl` is an `IOProcessor` (torch-free)."""

    group: ClassVar[str] = "core.io_processors"


class RouteSpec(Descriptor):
    """Further HTTP endpoints. `impl` is a `RoutePlugin` (torch-free).

    Attributes:
        mounts: Paths that it may take outside `/x/<name>`: each and everything below it, or `/` for that page alone.
            Core's own paths, and those of another chosen plugin, are refused. Below `/v1` and `/v2`, which many APIs
            share, it names what it takes: `/v1/messages`.
        public: Paths, each with everything below it (`/` alone), under which it may show assets without a key.
        automatic: It is served wherever it is installed; others are where `--route` names them.
        settings: Options that it goes by, of the section `server` and of those that plugins declare (`OptionSection`),
            as `stream_interval`; their values are `RouteRegistry.settings` and `EngineClient.settings`. Keys of the
            server are not among them.
        drives: Kinds of core's whose chosen plugins are its to call (`RouteRegistry.chosen`, `EngineClient.chosen`):
            `core.tool_servers`.
        key_headers: Headers in which clients of its API send the key, beside those that every server reads; their names
            end with `key`, as `api-key` does.
        exposed_headers: Headers of its answers that web pages of other origins may read, where such pages may ask at
            all; cookies are none of them.
    """

    group: ClassVar[str] = "core.routes"

    mounts: tuple[str, ...] = ()
    public: tuple[str, ...] = ()
    automatic: bool = False
    settings: tuple[str, ...] = ()
    drives: tuple[str, ...] = ()
    key_headers: tuple[str, ...] = ()
    exposed_headers: tuple[str, ...] = ()


class CommandSpec(Descriptor):
    """A sub-command of `core`: `name` is what the user types. `impl` is a `Command` (torch-free to import)."""

    group: ClassVar[str] = "core.commands"


class FlagDialectSpec(Descriptor):
    """Flags of another server. `impl` is a `FlagDialect` (torch-free). It is asked wherever it is installed.

    Options of its own it has none: it is asked while options are read.
    """

    group: ClassVar[str] = "core.flag_dialects"

    def _faults(self) -> Iterable[str]:
        if self.options is not None:
            yield "options: a flag dialect has none, for it is asked while options are read"


class OptionSection(Descriptor):
    """Options of a plugin's own, as core's are: flags, variables of the environment, keys of files, help.

    `impl` is a pydantic model (torch-free, imported wherever options are read): its fields have defaults and
    descriptions, and types that options may have: `bool`, `int`, `float`, `str` (each maybe `| None`), `Literal` of
    texts, `list[str]`, `dict[str, Any]` and `dict[str, dict[str, Any]]`; `OptionMarks` says more of one. `name` is the
    section's: the option `shelf` of `books` is `--shelf`, `CORE_SHELF`, `shelf` and `books.shelf`. Plugins get the
    values by naming options in their `settings`.

    Attributes:
        needs: Group of a kind -> options of this section: where one of them is set, a start needs a plugin of the kind,
            as if it had been asked for. Of kinds that plugins define, and of `core.tool_servers`.
    """

    group: ClassVar[str] = "core.option_sections"

    needs: Mapping[str, tuple[str, ...]] = EMPTY

    def _faults(self) -> Iterable[str]:
        if self.options is not None:
            yield "options: a section has none beside those that it declares, which are its `impl`"


class ToolServerSpec(Descriptor):
    """A protocol of tool servers. `impl` is a `ToolServerClient` (torch-free)."""

    group: ClassVar[str] = "core.tool_servers"


class TemplateEngineSpec(Descriptor):
    """A chat template engine: it renders conversations to prompts. `impl` is a `TemplateEngine` (torch-free).

    Attributes:
        marks: Texts of which every source of its language has one: `--chat-template` with one of them is a template
            itself, and otherwise a file or a name.
    """

    group: ClassVar[str] = "core.chat_templates"

    marks: tuple[str, ...] = ()


class StructuredOutputSpec(Descriptor):
    """A grammar engine. `impl` is a `StructuredOutputBackend` (torch-free).

    Attributes:
        grammars: Kinds of grammar it compiles, of `core.api.GRAMMAR_KINDS`.
        isolate: A grammar that a child process compiled is sent to the engine's, by `dump` of the compiled grammar and
            `load` of the backend. Without it the engine compiles again what a child process has compiled well.
    """

    group: ClassVar[str] = "core.structured_output"

    grammars: frozenset[str]
    isolate: bool = False


class DrafterSpec(Descriptor):
    """A source of draft tokens. `impl` is a `Drafter` (torch-free), loaded in the worker.

    Attributes:
        max_draft: Most tokens of one guess.
    """

    group: ClassVar[str] = "core.drafters"

    max_draft: Annotated[int, Between(1, 64)] = 4


class ParticipantSpec(Descriptor):
    """A feature that takes part in every step. `impl` is the engine half, a `Participant` (torch-free).

    Attributes:
        worker_impl: Dotted path of the worker half, a `WorkerParticipant`; None: it has none.
        front_impl: Dotted path of the front half, a `FrontParticipant` (torch-free); None: it has none.
        parts: Dotted path of a `Parts`, the types of what the halves send each other, in a torch-free module; None:
            they send nothing.
        devices: Device types that its worker half runs on; `*` means any.
        args: Names of a request's `extra_args` that its halves read; others are refused if no plugin reads them.
        taps: What its worker half reads of forward passes (`WorkerSetup.taps`): `experts`, the ids of each token's
            experts. A model without such layers is refused at the start.
        automatic: It takes part wherever it is installed and can; others do where `--participant` names them.
        tasks: Tasks of engines that it takes part in (`generate`, `pool`); `*` means any.
        honours: Fields of `SamplingParams` that core leaves to participants (`grammar`, `thinking_token_budget`) and
            that this one carries out. A request with one that no participant honours is refused.
        drives: Kinds of core's whose chosen plugins are its engine half's to call (`EngineSetup.chosen`), of those
            that have a `Kind.context`: `core.structured_output`.
        settings: Options that its engine half goes by, of the section `scheduler` and of those that plugins declare
            (`OptionSection`), as `max_num_seqs`; their values are `EngineSetup.settings`.
        constrains: Its halves say which tokens rows may have, so that no step may go on without it: where another's
            engine half would be passed over, the requests of the step that it failed at end with CORE-P108.
    """

    group: ClassVar[str] = "core.participants"

    worker_impl: str | None = None
    front_impl: str | None = None
    parts: str | None = None
    devices: frozenset[str] = frozenset({"*"})
    args: tuple[str, ...] = ()
    taps: tuple[str, ...] = ()
    automatic: bool = False
    tasks: frozenset[str] = frozenset({"*"})
    honours: tuple[str, ...] = ()
    drives: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    constrains: bool = False


class TaskSpec(Descriptor):
    """A task, which is what an engine does for its requests. `impl` is the engine half, a `Task` (torch-free).

    Attributes:
        worker_impl: Dotted path of the worker half, a `WorkerTask`.
        front_impl: Dotted path of what makes the front half: a `TaskFront`, or a function `(setup)` that returns one.
            Torch-free.
        choose: Dotted path of a torch-free function `(facts: TaskFacts) -> TaskChoice | None`: what follows if the
            task takes a model; None: it is not for it. `ConfigError`: the user wants of the model what it cannot do.
        settings: Options of the section `model` that `choose` goes by (`TaskFacts.settings`).
        drives: Kinds of core's whose chosen plugins its front half calls (`TaskFrontSetup.driven`):
            `core.io_processors`.
    """

    group: ClassVar[str] = "core.tasks"

    worker_impl: str
    front_impl: str
    choose: str
    settings: tuple[str, ...] = ()
    drives: tuple[str, ...] = ()


DESCRIPTORS: dict[str, type[Descriptor]] = {kind.group: kind for kind in Descriptor.__subclasses__()}
"""Descriptor type of every driver group of core's."""
