"""Everything a plugin may import from core. Torch-free.

Importing this package loads next to nothing: each name below comes from its module when it is first asked for, so that
a manifest, which needs a descriptor, does not pay for the rest.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

# At once, because the function has the name of its module.

if TYPE_CHECKING:
    from core.api.attention import (
        AfterLoad,
        AttentionBackend,
        AttentionContext,
        AttentionLayer,
        AttentionPlan,
        AttentionSite,
        BatchView,
        Compressed,
        CompressedLayer,
        CompressedSite,
        EncoderLayer,
        Encodes,
        KVLayout,
        Latent,
        LatentLayer,
        LatentSite,
        Picker,
        Picks,
        PickSite,
        Replayable,
        ReportsKV,
        Rotation,
        StoresRotated,
        TakesPicks,
        TakesScales,
        TakesSinks,
    )
    from core.api.bodies import Body, BodyPart
    from core.api.choices import ConsideredPlugin, PluginSelection, StartChoice
    from core.api.cli import CommandHost, OptionFlags, Signals, UsesHost, WholeFiles
    from core.api.commands import Command
    from core.api.configs import (
        MOST_LAYERS,
        MOST_POSITIONS,
        config_architecture,
        config_dtype,
        config_heads,
        config_int,
        config_labels,
        config_names,
        config_number,
        config_object,
    )
    from core.api.connectors import KVConnector, KVConnectorWorker
    from core.api.deprecation import CoreDeprecationWarning, Removed, Renamed
    from core.api.descriptors import (
        DESCRIPTORS,
        AttentionRequest,
        AttentionSpec,
        CommandSpec,
        Descriptor,
        DrafterSpec,
        ExecutorSpec,
        FlagDialectSpec,
        IOProcessorSpec,
        KernelSpec,
        KVConnectorSpec,
        LogitsSpec,
        ModelSourceSpec,
        ModelSpec,
        OptionSection,
        ParticipantSpec,
        PlatformSpec,
        QuantSpec,
        RouteSpec,
        SchedulerPolicySpec,
        StatSinkSpec,
        StructuredOutputSpec,
        TaskSpec,
        TemplateEngineSpec,
        ToolParserSpec,
        ToolServerSpec,
        WeightLoaderSpec,
        WeightStoreSpec,
        WeightTransferSpec,
    )
    from core.api.drafters import Drafter, DrafterContext
    from core.api.errors import CheckpointError, ConfigError, CoreError, EngineError, PluginError, RequestError
    from core.api.executors import Executor, ExecutorSetup, Worker, WorkerOpener, load_opener
    from core.api.experts import Experts, Router, Routing
    from core.api.facets import CollectiveFacet, Graph, GraphFacet
    from core.api.figures import Figure, FigureSample, Histogram
    from core.api.flags import FlagDialect
    from core.api.folders import PrivateFolder, clear_left
    from core.api.forms import PLAIN, Part, Stored, WeightForm
    from core.api.fronts import AskDriven, TaskFront, TaskFrontSetup, TaskInputs, TaskPrompt, Work
    from core.api.given_options import GivenOptions
    from core.api.hooks import hookimpl
    from core.api.installed import (
        FILE_PREFIX,
        InstalledPlugin,
        PluginCheck,
        PluginDistribution,
        PluginFault,
    )
    from core.api.io_processors import IOContext, IOOutput, IOProcessor, IOPrompts, IORequest
    from core.api.kept import KeptModel, LocalModels
    from core.api.kernels import OPS, DimRule, KernelRequest
    from core.api.kinds import Chosen, Contract, Fit, Kind, load_chosen
    from core.api.kvspecs import KVManager, KVSpec
    from core.api.layers import LayerBuilder, StateMemory, StepInputs
    from core.api.logits import LogitsContext, LogitsProcessor
    from core.api.models import ChatTemplates, Classifies, Model, WeightRules
    from core.api.offline import Generated, GeneratedSequence, OfflineEngine, StepPhase
    from core.api.operator import CacheFacts, Operator, PauseMode
    from core.api.option_sections import OptionMarks
    from core.api.parsers import (
        CallGrammar,
        EnforcesCalls,
        KnowsThinking,
        OutputParser,
        ParserContext,
        Reasoning,
        Text,
        ThinkingTags,
        ToolArguments,
        ToolEnd,
        ToolStart,
    )
    from core.api.participants import (
        AllowedTokens,
        BatchInputs,
        BlockRef,
        EngineSetup,
        FrontParticipant,
        FrontSetup,
        Participant,
        Parts,
        SampledStep,
        StagedRequest,
        Tap,
        TapPlace,
        WorkerParticipant,
        WorkerSetup,
    )
    from core.api.patches import ConfigPatch, Finding, Problem, Waiver
    from core.api.platform import Done, MemorySnapshot, Pending, Platform, Queue, Stream, Uploads
    from core.api.plugins import InstalledPlugins, PluginScope
    from core.api.pooling import (
        MAX_PROMPTS,
        DataRequest,
        Pooled,
        Pooler,
        PoolingFront,
        PoolRequest,
        ScoreRequest,
        VectorRequest,
    )
    from core.api.products import Product, ProductPlace, WrappedProduct
    from core.api.quantization import Format, LayerSite, QuantContext, QuantRequest
    from core.api.ranks import Ranks
    from core.api.requests import MAX_USER, Caller, Reject, RequestDraft, RequestPatch, key_id
    from core.api.rotary import RopeConfig, rope_config
    from core.api.routes import (
        MAX_PARTS,
        EngineClient,
        GeneratedText,
        RoutePlugin,
        RouteRegistry,
        RouteRequest,
        RouteResponse,
    )
    from core.api.runners import Enqueued, ModelHeads, RunnerSetup, TaskRunner, Timer, WorkerTask
    from core.api.sampling import SamplingField, SamplingView
    from core.api.sampling_table import SAMPLING_FIELDS
    from core.api.schedulers import AdmissionPolicy, ChunkPolicy, RequestView, SchedulerPolicy, SchedulerState
    from core.api.servers import (
        EventDecoder,
        OwnServer,
        RunningServer,
        ServerAddress,
        ServerClient,
        ServerDelta,
        Servers,
        StartPhase,
    )
    from core.api.serving import (
        Answer,
        AnswerRequest,
        ChatRequest,
        Delta,
        Dialect,
        Finish,
        Job,
        Outlet,
        Prompt,
        Reply,
        TextRequest,
        Timings,
        TokenScore,
        ToolChoice,
        Usage,
        error_object,
    )
    from core.api.shapes import ModelShape, PoolingDense, PoolingShape, WeightShape, features_of
    from core.api.sinks import EngineStats, FinishedRequest, StatSink
    from core.api.sockets import RouteSocket
    from core.api.sources import Access, KeepsModels, ReachesOut, RemovesModels, StoredModel
    from core.api.states import State, StateRows
    from core.api.steps import (
        BlockUpdate,
        NewRow,
        StateCopies,
        StepPlan,
        StepResult,
        StepShape,
        TopLogprobs,
        WorkerInfo,
    )
    from core.api.structured import (
        GRAMMAR_KINDS,
        CompiledGrammar,
        GrammarMatcher,
        LoadsGrammars,
        PortableGrammar,
        StructuredContext,
        StructuredOutputBackend,
        check_grammar_nesting,
        grammar_choices,
        grammar_json,
    )
    from core.api.tasks import (
        SettledStep,
        StepLimits,
        Task,
        TaskChoice,
        TaskFacts,
        TaskRequest,
        TaskSettler,
        TaskSetup,
        check_length,
    )
    from core.api.templates import (
        ChatTemplate,
        RenderTimeoutError,
        TemplateContext,
        TemplateEngine,
        TemplateInput,
    )
    from core.api.terminal import CountedProgress, RequestProgress, Terminal
    from core.api.tokenizer import (
        FittedText,
        Tokenizer,
        TokenizerExtras,
        TokenStream,
        token_bytes,
        token_table,
    )
    from core.api.tool_servers import (
        TOOL_BAD_ARGUMENTS,
        RemoteTool,
        ToolEndpoint,
        ToolResult,
        ToolServerClient,
        ToolServerError,
        ToolSession,
    )
    from core.api.uploads import RouteForm, UploadedFile
    from core.api.verdict import ProbeResult, Verdict
    from core.api.weights import (
        CheckpointInfo,
        CheckpointReader,
        KeptWeights,
        ModelFiles,
        ModelSource,
        WeightManifest,
        WeightReceiver,
        WeightStore,
        WeightTensor,
    )
    from core.api.wire import MessageDecoder, encode_message, restored

_NAMES: Mapping[str, str] = types.MappingProxyType(
    {
        "attention": (
            "AfterLoad AttentionBackend AttentionContext AttentionLayer AttentionPlan AttentionSite BatchView "
            "Compressed CompressedLayer CompressedSite EncoderLayer Encodes KVLayout Latent LatentLayer LatentSite "
            "Picker Picks PickSite Replayable ReportsKV Rotation StoresRotated TakesPicks TakesScales TakesSinks"
        ),
        "bodies": "Body BodyPart",
        "choices": "ConsideredPlugin PluginSelection StartChoice",
        "cli": "CommandHost OptionFlags Signals UsesHost WholeFiles",
        "commands": "Command",
        "configs": (
            "config_architecture config_dtype config_heads config_int config_labels config_names config_number "
            "config_object MOST_LAYERS MOST_POSITIONS"
        ),
        "connectors": "KVConnector KVConnectorWorker",
        "deprecation": "CoreDeprecationWarning",
        "descriptors": (
            "AttentionRequest AttentionSpec CommandSpec Descriptor DESCRIPTORS DrafterSpec ExecutorSpec "
            "FlagDialectSpec IOProcessorSpec KernelSpec KVConnectorSpec LogitsSpec ModelSourceSpec ModelSpec "
            "OptionSection ParticipantSpec PlatformSpec QuantSpec RouteSpec SchedulerPolicySpec StatSinkSpec "
            "StructuredOutputSpec TaskSpec TemplateEngineSpec ToolParserSpec ToolServerSpec WeightLoaderSpec "
            "WeightStoreSpec WeightTransferSpec"
        ),
        "drafters": "Drafter DrafterContext",
        "errors": "CheckpointError ConfigError CoreError EngineError PluginError RequestError",
        "executors": "Executor ExecutorSetup load_opener Worker WorkerOpener",
        "experts": "Experts Router Routing",
        "facets": "CollectiveFacet Graph GraphFacet",
        "figures": "Figure FigureSample Histogram",
        "flags": "FlagDialect",
        "given_options": "GivenOptions",
        "folders": "clear_left PrivateFolder",
        "forms": "Part PLAIN Stored WeightForm",
        "fronts": "AskDriven TaskFront TaskFrontSetup TaskInputs TaskPrompt Work",
        "hooks": "hookimpl",
        "installed": "FILE_PREFIX InstalledPlugin PluginCheck PluginDistribution PluginFault",
        "io_processors": "IOContext IOOutput IOProcessor IOPrompts IORequest",
        "kept": "KeptModel LocalModels",
        "kernels": "DimRule KernelRequest OPS",
        "kinds": "Chosen Contract Fit Kind load_chosen",
        "kvspecs": "KVManager KVSpec",
        "layers": "LayerBuilder StateMemory StepInputs",
        "logits": "LogitsContext LogitsProcessor",
        "models": "ChatTemplates Classifies Model WeightRules",
        "option_sections": "OptionMarks",
        "offline": "Generated GeneratedSequence OfflineEngine StepPhase",
        "parsers": (
            "CallGrammar EnforcesCalls KnowsThinking OutputParser ParserContext Reasoning Text ThinkingTags "
            "ToolArguments ToolEnd ToolStart"
        ),
        "operator": "CacheFacts Operator PauseMode",
        "participants": (
            "AllowedTokens BatchInputs BlockRef EngineSetup FrontParticipant FrontSetup Participant Parts SampledStep "
            "StagedRequest Tap TapPlace WorkerParticipant WorkerSetup"
        ),
        "patches": "ConfigPatch Finding Problem Waiver",
        "platform": "Done MemorySnapshot Pending Platform Queue Stream Uploads",
        "plugins": "InstalledPlugins PluginScope",
        "pooling": "DataRequest MAX_PROMPTS Pooled Pooler PoolingFront PoolRequest ScoreRequest VectorRequest",
        "products": "Product ProductPlace WrappedProduct",
        "quantization": "Format LayerSite QuantContext QuantRequest",
        "ranks": "Ranks",
        "requests": "MAX_USER Caller Reject RequestDraft RequestPatch key_id",
        "rotary": "rope_config RopeConfig",
        "routes": "MAX_PARTS EngineClient GeneratedText RoutePlugin RouteRegistry RouteRequest RouteResponse",
        "runners": "Enqueued ModelHeads RunnerSetup TaskRunner Timer WorkerTask",
        "sampling": "SamplingField SamplingView",
        "sampling_table": "SAMPLING_FIELDS",
        "schedulers": "AdmissionPolicy ChunkPolicy RequestView SchedulerPolicy SchedulerState",
        "servers": "EventDecoder OwnServer RunningServer ServerAddress ServerClient ServerDelta Servers StartPhase",
        "serving": (
            "Answer AnswerRequest ChatRequest Delta Dialect Finish Job Outlet Prompt Reply TextRequest Timings "
            "TokenScore ToolChoice Usage error_object"
        ),
        "shapes": "features_of ModelShape PoolingDense PoolingShape WeightShape",
        "sinks": "EngineStats FinishedRequest StatSink",
        "sockets": "RouteSocket",
        "sources": "Access KeepsModels ReachesOut RemovesModels StoredModel",
        "states": "State StateRows",
        "steps": "BlockUpdate NewRow StateCopies StepPlan StepResult StepShape TopLogprobs WorkerInfo",
        "structured": (
            "check_grammar_nesting CompiledGrammar grammar_choices grammar_json GRAMMAR_KINDS GrammarMatcher "
            "LoadsGrammars PortableGrammar StructuredContext StructuredOutputBackend"
        ),
        "tasks": ("check_length SettledStep StepLimits Task TaskChoice TaskFacts TaskRequest TaskSettler TaskSetup"),
        "templates": "ChatTemplate RenderTimeoutError TemplateContext TemplateEngine TemplateInput",
        "terminal": "CountedProgress RequestProgress Terminal",
        "tokenizer": ("FittedText token_bytes token_table Tokenizer TokenizerExtras TokenStream"),
        "tool_servers": (
            "RemoteTool TOOL_BAD_ARGUMENTS ToolEndpoint ToolResult ToolServerClient ToolServerError ToolSession"
        ),
        "verdict": "ProbeResult Verdict",
        "wire": "encode_message MessageDecoder restored",
        "uploads": "RouteForm UploadedFile",
        "weights": (
            "CheckpointInfo CheckpointReader KeptWeights ModelFiles ModelSource WeightManifest WeightReceiver "
            "WeightStore WeightTensor"
        ),
    }
)
"""Module -> the public names that it defines."""

_HOME: Mapping[str, str] = types.MappingProxyType(
    {name: home for home, names in _NAMES.items() for name in names.split()}
)


_DEPRECATED: Mapping[str, Renamed | Removed] = types.MappingProxyType({})
"""Names that were public here -> what became of them (docs/plugins/stability.md)."""


def __getattr__(name: str) -> Any:
    """Load a public name from its module (PEP 562)."""
    if name in _DEPRECATED:
        from core.api.deprecation import look_up

        return look_up(__name__, name, _DEPRECATED)
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *_HOME]


# fmt: off
__all__ = [
    "Access", "AdmissionPolicy", "AfterLoad", "AllowedTokens", "Answer", "AnswerRequest", "AskDriven",
    "AttentionBackend", "AttentionContext", "AttentionLayer", "AttentionPlan", "AttentionRequest", "AttentionSite",
    "AttentionSpec", "BatchInputs", "BatchView", "BlockRef", "BlockUpdate", "Body", "BodyPart", "CacheFacts",
    "Caller", "CallGrammar", "ChatRequest", "ChatTemplate", "ChatTemplates", "check_grammar_nesting", "check_length",
    "CheckpointError", "CheckpointInfo", "CheckpointReader", "Chosen", "ChunkPolicy", "Classifies", "clear_left",
    "CollectiveFacet", "Command", "CommandHost", "CommandSpec", "CompiledGrammar", "Compressed", "CompressedLayer",
    "CompressedSite", "config_architecture", "config_dtype", "config_heads", "config_int", "config_labels",
    "config_names", "config_number", "config_object", "ConfigError", "ConfigPatch", "ConsideredPlugin", "Contract",
    "CoreDeprecationWarning", "CoreError", "CountedProgress", "DataRequest", "Delta", "Descriptor", "DESCRIPTORS",
    "Dialect", "DimRule", "Done", "Drafter", "DrafterContext", "DrafterSpec", "encode_message", "EncoderLayer",
    "Encodes", "EnforcesCalls", "EngineClient", "EngineError", "EngineSetup", "EngineStats", "Enqueued",
    "error_object", "EventDecoder", "Executor", "ExecutorSetup", "ExecutorSpec", "Experts", "features_of", "Figure",
    "FigureSample", "FILE_PREFIX", "Finding", "Finish", "FinishedRequest", "Fit", "FittedText", "FlagDialect",
    "FlagDialectSpec", "Format", "FrontParticipant", "FrontSetup", "Generated", "GeneratedSequence", "GeneratedText",
    "GivenOptions", "grammar_choices", "grammar_json", "GRAMMAR_KINDS", "GrammarMatcher", "Graph", "GraphFacet",
    "Histogram", "hookimpl", "InstalledPlugin", "InstalledPlugins", "IOContext", "IOOutput", "IOProcessor",
    "IOProcessorSpec", "IOPrompts", "IORequest", "Job", "KeepsModels", "KeptModel", "KeptWeights", "KernelRequest",
    "KernelSpec", "key_id", "Kind", "KnowsThinking", "KVConnector", "KVConnectorSpec", "KVConnectorWorker",
    "KVLayout", "KVManager", "KVSpec", "Latent", "LatentLayer", "LatentSite", "LayerBuilder", "LayerSite",
    "load_chosen", "load_opener", "LoadsGrammars", "LocalModels", "LogitsContext", "LogitsProcessor", "LogitsSpec",
    "MAX_PARTS", "MAX_PROMPTS", "MAX_USER", "MemorySnapshot", "MessageDecoder", "Model", "ModelFiles", "ModelHeads",
    "ModelShape", "ModelSource", "ModelSourceSpec", "ModelSpec", "MOST_LAYERS", "MOST_POSITIONS", "NewRow",
    "OfflineEngine", "Operator", "OPS", "OptionFlags", "OptionMarks", "OptionSection", "Outlet", "OutputParser",
    "OwnServer", "ParserContext", "Part", "Participant", "ParticipantSpec", "Parts", "PauseMode", "Pending", "Picker",
    "Picks", "PickSite", "PLAIN", "Platform", "PlatformSpec", "PluginCheck", "PluginDistribution", "PluginError",
    "PluginFault", "PluginScope", "PluginSelection", "Pooled", "Pooler", "PoolingDense", "PoolingFront",
    "PoolingShape", "PoolRequest", "PortableGrammar", "PrivateFolder", "ProbeResult", "Problem", "Product",
    "ProductPlace", "Prompt", "QuantContext", "QuantRequest", "QuantSpec", "Queue", "Ranks", "ReachesOut",
    "Reasoning", "Reject", "RemoteTool", "RemovesModels", "RenderTimeoutError", "Replayable", "Reply", "ReportsKV",
    "RequestDraft", "RequestError", "RequestPatch", "RequestProgress", "RequestView", "restored", "rope_config",
    "RopeConfig", "Rotation", "RouteForm", "RoutePlugin", "Router", "RouteRegistry", "RouteRequest", "RouteResponse",
    "RouteSocket", "RouteSpec", "Routing", "RunnerSetup", "RunningServer", "SampledStep", "SAMPLING_FIELDS",
    "SamplingField", "SamplingView", "SchedulerPolicy", "SchedulerPolicySpec", "SchedulerState", "ScoreRequest",
    "ServerAddress", "ServerClient", "ServerDelta", "Servers", "SettledStep", "Signals", "StagedRequest",
    "StartChoice", "StartPhase", "State", "StateCopies", "StateMemory", "StateRows", "StatSink", "StatSinkSpec",
    "StepInputs", "StepLimits", "StepPhase", "StepPlan", "StepResult", "StepShape", "Stored", "StoredModel",
    "StoresRotated", "Stream", "StructuredContext", "StructuredOutputBackend", "StructuredOutputSpec", "TakesPicks",
    "TakesScales", "TakesSinks", "Tap", "TapPlace", "Task", "TaskChoice", "TaskFacts", "TaskFront", "TaskFrontSetup",
    "TaskInputs", "TaskPrompt", "TaskRequest", "TaskRunner", "TaskSettler", "TaskSetup", "TaskSpec",
    "TemplateContext", "TemplateEngine", "TemplateEngineSpec", "TemplateInput", "Terminal", "Text", "TextRequest",
    "ThinkingTags", "Timer", "Timings", "token_bytes", "token_table", "Tokenizer", "TokenizerExtras", "TokenScore",
    "TokenStream", "TOOL_BAD_ARGUMENTS", "ToolArguments", "ToolChoice", "ToolEnd", "ToolEndpoint", "ToolParserSpec",
    "ToolResult", "ToolServerClient", "ToolServerError", "ToolServerSpec", "ToolSession", "ToolStart", "TopLogprobs",
    "UploadedFile", "Uploads", "Usage", "UsesHost", "VectorRequest", "Verdict", "Waiver", "WeightForm",
    "WeightLoaderSpec", "WeightManifest", "WeightReceiver", "WeightRules", "WeightShape", "WeightStore",
    "WeightStoreSpec", "WeightTensor", "WeightTransferSpec", "WholeFiles", "Work", "Worker", "WorkerInfo",
    "WorkerOpener", "WorkerParticipant", "WorkerSetup", "WorkerTask", "WrappedProduct",
]
# fmt: on
