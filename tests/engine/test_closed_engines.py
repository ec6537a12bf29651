"""An engine in the caller's process gives back what it held when it is closed."""

from __future__ import annotations

import gc

import pytest

from core import LLM, SamplingParams
from core.worker.loader import LoadedModel
from core_testing.tinymodels import tiny_llama


@pytest.fixture
def no_collections():
    """The interpreter collects nothing by itself meanwhile."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def models():
    return sum(isinstance(one, LoadedModel) for one in gc.get_objects())


def test_weights_go_with_the_engine(tmp_path, no_collections):
    path, before = tiny_llama(tmp_path / "llama"), models()
    with LLM(str(path), dtype="float32", num_blocks=40, max_num_seqs=2, threads=1) as llm:
        llm.generate([[1, 2, 3]], SamplingParams(max_tokens=2))
        assert models() == before + 1
    assert models() == before
