"""The context that a start ends up with: lowered, or refused before a weight is read."""

from __future__ import annotations

import logging

import pytest

from core import LLM, SamplingParams
from core.api import EngineError, PluginError
from core_testing.tinymodels import tiny_llama

CPU = {"dtype": "float32", "threads": 1, "block_size": 16}


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    return str(tiny_llama(tmp_path_factory.mktemp("models") / "llama", max_position_embeddings=512))


@pytest.fixture
def unreadable(monkeypatch):
    """No weight can be read."""
    from core_plugin_huggingface.reader import SafetensorsReader

    def tensors(self, path, progress):
        raise AssertionError("a weight was read")

    monkeypatch.setattr(SafetensorsReader, "tensors", tensors)


@pytest.mark.parametrize("named", [{}, {"max_model_len": "auto"}])
def test_without_a_context_what_fits_is_taken_and_told(llama, caplog, named):
    with caplog.at_level(logging.WARNING), LLM(llama, num_blocks=5, **CPU, **named) as llm:
        assert (llm.model.max_model_len, llm.config.max_model_len) == (64, 64)
        output = llm.generate([{"prompt_token_ids": [5] * 40}], SamplingParams(max_tokens=24, ignore_eos=True))[0]
    assert len(output.outputs[0].token_ids) == 24
    (told,) = [record.getMessage() for record in caplog.records if "CORE-C210" in record.getMessage()]
    assert "64 tokens instead of 512" in told


def test_a_context_that_fits_is_the_models_own(llama, caplog):
    with caplog.at_level(logging.WARNING), LLM(llama, num_blocks=33, **CPU) as llm:
        assert llm.model.max_model_len == 512
    assert "CORE-C210" not in caplog.text


@pytest.mark.covers("PLAT-04")
@pytest.mark.parametrize("options", [{"num_blocks": 32}, {"memory_fraction": 1e-9}, {"kv_memory": "1KiB"}])
def test_a_context_that_was_named_and_does_not_fit_is_refused_before_weights(llama, unreadable, options):
    with pytest.raises(EngineError, match=r"CORE-E120.*512 tokens") as failure:
        LLM(llama, max_model_len=512, **CPU, **options)
    assert "--max-model-len (auto" in str(failure.value)


def test_no_room_for_a_single_block_is_refused_before_weights(llama, unreadable):
    with pytest.raises(EngineError, match=r"CORE-E120.*one token"):
        LLM(llama, memory_fraction=1e-9, **CPU)


@pytest.mark.covers("PLAT-04")
def test_weights_count_before_they_are_read(llama, unreadable, monkeypatch):
    from core_plugin_cpu.platform import CPUPlatform

    from core.api import MemorySnapshot

    free = 33 * 12288  # 512 tokens of this model and the null block, if weights took nothing
    monkeypatch.setattr(CPUPlatform, "memory", lambda self: MemorySnapshot(2**30, free))
    with pytest.raises(EngineError, match=r"CORE-E120.*the weights will take"):
        LLM(llama, max_model_len=512, memory_fraction=1.0, **CPU)
    free += 2**20  # more than the weights
    with pytest.raises(
        PluginError, match=r"CORE-P108 weight loader .*tensors\(\) raised AssertionError: a weight was read"
    ):
        LLM(llama, max_model_len=512, memory_fraction=1.0, **CPU)
