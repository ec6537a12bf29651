"""What the process in front of an engine must not load, and what it gives back."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from core.api.errors import CheckpointError
from core.selection import no_tokenizer

LOADED = """
import json, sys
import core.cli.serve, core.frontend.async_llm, core.server.app, core.server.http, core.server.launch
unwanted = ("torch", "transformers", "triton", "core.worker", "core.layers", "numpy.random", "mcp", "httpx", "requests")
print(json.dumps([name for name in unwanted if name in sys.modules]))
"""


def test_the_server_loads_nothing_that_only_engines_and_clients_need():
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(done.stdout) == []


@pytest.mark.parametrize("fails", [False, True])
def test_memory_is_given_back_once_the_tokenizer_is_read(monkeypatch, fails):
    order = []

    def tokenizer(path):
        order.append(path)
        if fails:
            raise CheckpointError("CORE-M111", "damaged.")
        return "tokenizer"

    monkeypatch.setattr(no_tokenizer, "trim", lambda: order.append("trimmed"))
    config = SimpleNamespace(checkpoint=SimpleNamespace(path="model"), decodes=True)
    reader = SimpleNamespace(tokenizer=tokenizer)
    if fails:
        with pytest.raises(CheckpointError):
            no_tokenizer.tokenizer_of(reader, config)
    else:
        assert no_tokenizer.tokenizer_of(reader, config) == "tokenizer"
    assert order == [Path("model"), "trimmed"]
