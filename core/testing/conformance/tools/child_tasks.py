"""What a fresh interpreter is asked about one plugin: functions from a request to facts, both as JSON has them."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

from core.plugins.drivers import describe
from core.testing.conformance.tools.guard import Guard

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
    """Compile grammars and say which of them take too long, or raise anything but `ValueError`."""
    from core.api.structured import StructuredContext
    from core.api.tokenizer import tokenizer_from_directory

    tokenizer = tokenizer_from_directory(request["tokenizer"])
    backend = load(request["impl"])(StructuredContext(tokenizer.vocab_size, lambda: tokenizer, request["options"]))
    faults = []
    for kind, value in request["grammars"]:
        begin = time.perf_counter()
        try:
            backend.compile(kind, value).matcher()
        except ValueError:
            pass
        except Exception as error:
            faults.append([kind, value, f"it raises {describe(error)}, where a ValueError is due"])
        if (seconds := time.perf_counter() - begin) > request["seconds"]:
            faults.append([kind, value, f"it takes {seconds:.0f} s, allowed {request['seconds']:g}"])
    return {"faults": faults}


def command_help(request: Mapping[str, Any]) -> Facts:
    """Make a command's help where torch cannot be imported."""
    import argparse

    with without_torch() as facts:
        parser = argparse.ArgumentParser(request["name"])
        load(request["impl"])().register(parser)
        parser.format_help()
    return facts
