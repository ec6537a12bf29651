"""What a fresh interpreter is asked about one plugin; the child's side, as `probe` is."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from core.plugins.drivers import describe
from core.testing.conformance.tools.guard import Guard

Facts = dict[str, Any]

NO_TORCH = frozenset({"torch", "triton", "transformers"})


def imported(request: Mapping[str, Any]) -> Facts:
    """Import one object and say which modules of the `watch` packages came with it.

    The probe itself has parts of core loaded: they are put aside first.
    """
    for name in [name for name in sys.modules if name.split(".")[0] == "core"]:
        del sys.modules[name]
    module, _, name = request["path"].partition(":")
    try:
        getattr(import_module(module), name)
    except Exception as error:
        return {"error": describe(error)}
    return {"modules": sorted(name for name in sys.modules if name.startswith(tuple(request["watch"])))}


def reader(request: Mapping[str, Any]) -> Facts:
    """Let a weight loader recognise, inspect and tokenize a checkpoint where torch cannot be imported."""
    guard = Guard(NO_TORCH)
    guard.start()
    module, _, name = request["impl"].partition(":")
    try:
        made = getattr(import_module(module), name)()
        path = Path(request["path"])
        known = made.recognises(path)
        made.inspect(path)
        if request["tokenizer"]:
            made.tokenizer(path)
    except Exception as error:
        return {"error": describe(error), "imports": guard.imports}
    return {"recognises": bool(known), "imports": guard.imports}


def resolved(request: Mapping[str, Any]) -> Facts:
    """Resolve a reference with a model source, in the environment that this process was started with."""
    from core.api.errors import CheckpointError

    module, _, name = request["impl"].partition(":")
    try:
        found = getattr(import_module(module), name)().resolve(request["reference"])
    except CheckpointError as error:
        return {"refused": error.to_dict()}
    except Exception as error:
        return {"error": describe(error)}
    return {"files": found.model_dump(mode="json") if hasattr(found, "model_dump") else found}


def compile(request: Mapping[str, Any]) -> Facts:
    """Compile grammars and say which of them take too long, or raise anything but `ValueError`."""
    from core.api.structured import StructuredContext
    from core.api.tokenizer import tokenizer_from_directory

    tokenizer = tokenizer_from_directory(request["tokenizer"])
    module, _, name = request["impl"].partition(":")
    context = StructuredContext(tokenizer.vocab_size, lambda: tokenizer, request["options"])
    backend = getattr(import_module(module), name)(context)
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

    guard = Guard(NO_TORCH)
    guard.start()
    module, _, name = request["impl"].partition(":")
    try:
        parser = argparse.ArgumentParser(request["name"])
        getattr(import_module(module), name)().register(parser)
        text = parser.format_help()
    except Exception as error:
        return {"error": describe(error), "imports": guard.imports}
    return {"text": text, "imports": guard.imports}
