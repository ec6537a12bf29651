"""Everything a plugin may import from core. Torch-free."""

from core.api.attention import (
    AttentionBackend,
    AttentionContext,
    AttentionLayer,
    AttentionPlan,
    AttentionSite,
    BatchView,
    KVLayout,
)
from core.api.connectors import BlockRef, KVConnector, KVConnectorWorker
from core.api.descriptors import (
    DESCRIPTORS,
    AttentionRequest,
    AttentionSpec,
    Descriptor,
    ExecutorSpec,
    KVConnectorSpec,
    ModelSourceSpec,
    ModelSpec,
    PlatformSpec,
    QuantSpec,
    SchedulerPolicySpec,
    ToolParserSpec,
    WeightLoaderSpec,
    WeightTransferSpec,
)
from core.api.errors import CheckpointError, ConfigError, CoreError, EngineError, PluginError, RequestError
from core.api.executors import Executor
from core.api.hooks import hookimpl
from core.api.models import LayerBuilder, Model, ModelShape, RopeConfig, StepInputs, WeightRules, features_of
from core.api.parsers import OutputParser, ParserContext, Reasoning, Text, ToolArguments, ToolEnd, ToolStart
from core.api.patches import ConfigPatch, Problem
from core.api.platform import MemorySnapshot, Pending, Platform, Stream
from core.api.quantization import LayerQuant, LayerSite, ParamBuilder, QuantContext, QuantScheme
from core.api.schedulers import RequestView, SchedulerPolicy
from core.api.tokenizer import Tokenizer, TokenStream
from core.api.verdict import ProbeResult, Verdict
from core.api.versions import API_VERSIONS, accepts
from core.api.weights import (
    CheckpointInfo,
    CheckpointReader,
    ModelFiles,
    ModelSource,
    WeightManifest,
    WeightReceiver,
    WeightTensor,
)

__all__ = [
    "API_VERSIONS",
    "AttentionBackend",
    "AttentionContext",
    "AttentionLayer",
    "AttentionPlan",
    "AttentionRequest",
    "AttentionSite",
    "AttentionSpec",
    "BatchView",
    "BlockRef",
    "CheckpointError",
    "CheckpointInfo",
    "CheckpointReader",
    "ConfigError",
    "ConfigPatch",
    "CoreError",
    "DESCRIPTORS",
    "Descriptor",
    "EngineError",
    "Executor",
    "ExecutorSpec",
    "KVConnector",
    "KVConnectorSpec",
    "KVConnectorWorker",
    "KVLayout",
    "LayerBuilder",
    "LayerQuant",
    "LayerSite",
    "MemorySnapshot",
    "Model",
    "ModelFiles",
    "ModelShape",
    "ModelSource",
    "ModelSourceSpec",
    "ModelSpec",
    "OutputParser",
    "ParamBuilder",
    "ParserContext",
    "Pending",
    "Platform",
    "PlatformSpec",
    "PluginError",
    "ProbeResult",
    "Problem",
    "QuantContext",
    "QuantScheme",
    "QuantSpec",
    "Reasoning",
    "RequestError",
    "RequestView",
    "RopeConfig",
    "SchedulerPolicy",
    "SchedulerPolicySpec",
    "StepInputs",
    "Stream",
    "Text",
    "TokenStream",
    "Tokenizer",
    "ToolArguments",
    "ToolEnd",
    "ToolParserSpec",
    "ToolStart",
    "Verdict",
    "WeightLoaderSpec",
    "WeightManifest",
    "WeightReceiver",
    "WeightRules",
    "WeightTensor",
    "WeightTransferSpec",
    "accepts",
    "features_of",
    "hookimpl",
]
