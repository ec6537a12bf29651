"""Every model family of the bundle runs as a CPU program: how many native calls a step takes, and where it is cut."""

from __future__ import annotations

import pytest
from core_plugin_cpu.native import library

from core import LLM
from core_testing.tinyencoders import ENCODERS, tiny_encoder
from core_testing.tinymodels import FAMILIES, tiny_model

pytestmark = pytest.mark.skipif(not library.available(), reason=f"no native library: {library.reason()}")

CHECKS = 2
"""Calls that look at token ids and positions; another looks at the batch of each cache group."""

DECODERS = {
    # Outside the layers a lookup and the first norm; of a layer 2 norms, 5 calls of attention, 2 of the MLP.
    **dict.fromkeys(FAMILIES, (2, 3, 9)),
    **dict.fromkeys(["qwen3", "qwen3_window"], (2, 3, 11)),  # norms of queries and keys
    # The embedding's rows are scaled; a layer has two more norms, on what it adds to the residual.
    **dict.fromkeys(["gemma2", "gemma2_untied"], (3, 4, 11)),
    **dict.fromkeys(["gemma3", "gemma3_scaled"], (3, 4, 13)),
}
"""Family -> calls outside the layers, layers, calls of each."""

GROUPS = {"qwen2_window": 3, "qwen3_window": 3, "gemma2": 2, "gemma2_untied": 2, "gemma3": 4, "gemma3_scaled": 2}
"""Cache groups of families with windows in some layers only: each has equally many layers."""

OTHER_ATTENTION = {"llama3": {"head_dim": 32}, "MPNet": None}
"""What a family is made with, because the native attention has no heads of 24; None: nor biases by position."""

ENCODER_CALLS = {
    "Bert": 34,
    "Roberta": 35,
    "XLMRoberta": 35,
    "DistilBert": 31,
    "ModernBert": 32,
    "NomicBert": 32,
    "Gte": 38,
    "JinaEmbeddingsV3": 35,
}


def program(directory, **options):
    """Return what the start table says of the program."""
    with LLM(str(directory), dtype="float32", threads=1, **options) as llm:
        return llm._engine.ready.facts["program"]


def test_every_family_is_looked_at():
    assert set(DECODERS) == set(FAMILIES)
    assert set(ENCODER_CALLS) | {name for name, change in OTHER_ATTENTION.items() if change is None} == set(ENCODERS)


@pytest.mark.parametrize("family", FAMILIES)
def test_decoders_are_recorded(family, tmp_path):
    directory = tiny_model(tmp_path / "model", family, **(OTHER_ATTENTION.get(family) or {}))
    outside, layers, layer = DECODERS[family]
    checks = CHECKS + GROUPS.get(family, 1)
    assert program(directory, num_blocks=60) == f"{checks + outside + layers * layer} calls"


@pytest.mark.parametrize("family", ENCODERS)
def test_encoders_are_recorded(family, tmp_path):
    told = program(tiny_encoder(tmp_path / "model", f"{family}Model"))
    if family in ENCODER_CALLS:
        assert told == f"{ENCODER_CALLS[family]} calls"
    else:
        assert told == "none: the attention backend is not cpu_native"
