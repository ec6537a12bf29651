"""Tasks of a fresh interpreter about one plugin: functions from a request to facts, both as JSON has them."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

from core.plugins.drivers import describe
from core_testing.conformance.tools.guard import Guard

Facts = dict[str, Any]

_TORCH = frozenset({"torch", "triton", "transformers"})


def load(path: str) -> Any:
    """Import `package.module:Attribute`."""
    return EntryPoint("", path, "").load()


@contextmanager
def error_told(facts: Facts, key: str = "error") -> Iterator[None]:
    """Put what the block raises into `facts`."""
    try:
        yield
    except Exception as error:
        facts[key] = describe(error)


@contextmanager
def without_torch() -> Iterator[Facts]:
    """Yield new facts; in the block torch cannot be imported. `imports` is who asked for it, `error` what it raised."""
    guard = Guard(_TORCH)
    facts = Facts(imports=guard.imports)
    guard.start()
    with error_told(facts):
        yield facts


def imported(request: Mapping[str, Any]) -> Facts:
    """Import one object and say which modules of the `watch` packages came with it.

    This process has parts of core loaded: they are put aside first.
    """
    for name in [name for name in sys.modules if name.split(".")[0] == "core"]:
        del sys.modules[name]
    facts = Facts()
    with error_told(facts):
        load(request["path"])
    return facts | {"modules": sorted(name for name in sys.modules if name.startswith(tuple(request["watch"])))}


def reader(request: Mapping[str, Any]) -> Facts:
    """Let a weight loader recognise, inspect and tokenize a checkpoint where torch cannot be imported."""
    with without_torch() as facts:
        made, path = load(request["impl"])(), Path(request["path"])
        made.recognises(path)
        made.inspect(path)
        if request["tokenizer"]:
            made.tokenizer(path)
    return facts


def resolved(request: Mapping[str, Any]) -> Facts:
    """Resolve a reference with a model source, in the environment that this process was started with."""
    from core.api.errors import CheckpointError

    facts = Facts()
    with error_told(facts):
        try:
            found = load(request["impl"])().resolve(request["reference"])
        except CheckpointError as error:
            return {"refused": error.to_dict()}
        facts["files"] = found.model_dump(mode="json") if hasattr(found, "model_dump") else found
    return facts


def compile(request: Mapping[str, Any]) -> Facts:
    """Compile grammars one after the other within the bounds of core's compilers; write into `journal` how each ended.

    The system ends this process at the first that takes too long, or that breaks it: the one that the journal lacks.
    """
    from core_plugin_structured.compiling.child import limit_memory

    from core.api.structured import StructuredContext
    from core_tokenizers import tokenizer_from_directory

    tokenizer = tokenizer_from_directory(request["tokenizer"])
    backend = load(request["impl"])(StructuredContext(tokenizer.vocab_size, lambda: tokenizer, request["options"]))
    limit_memory(request["memory"])
    with Path(request["journal"]).open("a", encoding="utf-8") as journal:
        for kind, value in request["grammars"]:
            _bound_time(request["seconds"], request["patience"])
            fault = _compile_and_begin(backend, kind, value, tokenizer.vocab_size, isolate=request["isolate"])
            _bound_time(0, 0)
            journal.write(json.dumps(fault) + "\n")
            journal.flush()
    return Facts()


def _bound_time(processor: float, real: float) -> None:
    """Let the system end this process after so many seconds of processor time, or of time; 0 is no bound."""
    signal.setitimer(signal.ITIMER_PROF, processor)
    signal.setitimer(signal.ITIMER_REAL, real)


def _compile_and_begin(backend: Any, kind: str, value: str, vocab_size: int, *, isolate: bool) -> str:
    """Compile a grammar, bring it in as the engine does, and make its first masks; return what is wrong with that."""
    from core_plugin_structured.compiling.trial import begin

    from core.plugins.handed import Handed

    handed = Handed("the backend")
    try:
        compiled = backend.compile(kind, value)
        begin(compiled, vocab_size, handed)
        begin(backend.load(compiled.dump()) if isolate else backend.compile(kind, value), vocab_size, handed)
    except (ValueError, MemoryError):
        return ""
    except Exception as error:
        return f"it raises {describe(error)}, where a ValueError is due"
    return ""


def command_help(request: Mapping[str, Any]) -> Facts:
    """Make a command's help where torch cannot be imported."""
    from core.api.cli import UsesHost
    from core.cli.host import Host
    from core.config.parser import CoreParser

    with without_torch() as facts:
        parser, command = CoreParser(request["name"]), load(request["impl"])()
        if isinstance(command, UsesHost):
            command.bind(Host())
        command.register(parser)
        parser.format_help()
    return facts
