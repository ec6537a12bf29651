"""XGrammar's native library without the Python package around it, which imports torch and transformers."""

from __future__ import annotations

import importlib.util
import sys
import threading
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_LOCK = threading.Lock()
_PACKAGE = "xgrammar"
_NOT_NEEDED = ("torch", "transformers")


def bindings() -> Any:
    """Return the module with the library's classes. Safe to call from several threads, cheap when repeated."""
    with _LOCK:
        if _PACKAGE in sys.modules:
            return _classes()
        with _hidden(), _skeleton():
            return _classes()


def _classes() -> Any:
    importlib.import_module(f"{_PACKAGE}.load_binding")
    return importlib.import_module(f"{_PACKAGE}.base")._core


@contextmanager
def _skeleton() -> Iterator[None]:
    """Let modules of the package be imported while its `__init__` is not; a later import of the package runs it."""
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or spec.submodule_search_locations is None:
        raise ModuleNotFoundError("xgrammar is not installed: pip install --no-deps xgrammar==0.2.8", name=_PACKAGE)
    package = types.ModuleType(_PACKAGE)
    package.__path__ = list(spec.submodule_search_locations)
    package.__spec__ = spec
    sys.modules[_PACKAGE] = package
    try:
        yield
    finally:
        if sys.modules.get(_PACKAGE) is package:
            del sys.modules[_PACKAGE]


@contextmanager
def _hidden() -> Iterator[None]:
    """Keep the foreign-function layer from importing torch, which it does wherever it finds it."""
    absent = [name for name in _NOT_NEEDED if name not in sys.modules]
    for name in absent:
        sys.modules[name] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        for name in absent:
            if name in sys.modules and sys.modules[name] is None:
                del sys.modules[name]
