"""The conformance kit: what every plugin of a kind must do, in-repository ones and strangers' alike.

    pytest --core-plugin-conformance=acme-core-parser     # or GROUP:NAME, or NAME; nothing for every plugin
    core_testing.conformance.run("acme-core-parser")      # the same without pytest

Who defines a kind of plugin gives it checks of its own: functions of a `Subject`, gathered by `checks`.

Importing this package imports no torch; the checks of a kind import what they need.
"""

from core_testing.conformance.device_samples import (
    AttentionSample,
    CheckpointSample,
    KernelSample,
    LogitsSample,
    ReferenceDevice,
    RoundingSample,
    StandInRuntime,
)
from core_testing.conformance.kit import run
from core_testing.conformance.outcome import (
    Check,
    Failed,
    Level,
    NotApplicable,
    Outcome,
    Unavailable,
    checks,
    require,
)
from core_testing.conformance.quantized import quantized_sample
from core_testing.conformance.report import PluginReport, Report
from core_testing.conformance.samples import (
    CommandSample,
    FlagSample,
    GrammarSample,
    IOSample,
    ModelSample,
    OptionsSample,
    ParserSample,
    RouteSample,
    Sample,
    SocketSample,
    SourceSample,
    TemplateSample,
    ToolServerSample,
    TransferSample,
)
from core_testing.conformance.subject import Subject
from core_testing.conformance.tools.grammar_samples import EBNF, LARK
from core_testing.conformance.tools.hostile_grammars import HOSTILE

__all__ = [
    "AttentionSample",
    "Check",
    "CheckpointSample",
    "CommandSample",
    "EBNF",
    "Failed",
    "FlagSample",
    "GrammarSample",
    "HOSTILE",
    "IOSample",
    "KernelSample",
    "LARK",
    "Level",
    "LogitsSample",
    "ModelSample",
    "NotApplicable",
    "OptionsSample",
    "Outcome",
    "ParserSample",
    "PluginReport",
    "ReferenceDevice",
    "Report",
    "RoundingSample",
    "RouteSample",
    "SocketSample",
    "Sample",
    "SourceSample",
    "StandInRuntime",
    "Subject",
    "TemplateSample",
    "ToolServerSample",
    "TransferSample",
    "Unavailable",
    "checks",
    "quantized_sample",
    "require",
    "run",
]
