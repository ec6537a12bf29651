"""Models of every method: made-up weights, equal bytes each time, updates, and what does not belong to them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from core import LLM, SamplingParams
from core.api import CheckpointError
from core.layers.weights import WeightGroup
from core_testing.tinymodels import tiny_llama

sys.path.insert(0, str(Path(__file__).parent))
from checkpoints import write
from quantized import FORMS, ROUNDED, plain, quantized, some, without_weights

GREEDY = SamplingParams(temperature=0.0, max_tokens=6, ignore_eos=True)
PROMPT = {"prompt_token_ids": [3 + (i * 29) % 90 for i in range(21)]}
TAKES_PLAIN = {"fp8", "fp8 static", "fp8 in blocks", "fp8 by outputs", "AutoRound FP8"}
"""Forms whose layers have the tensors of plain ones, too: numbers of an update are rounded to them."""


def opened(path, **options):
    return LLM(str(path), dtype="float32", num_blocks=20, block_size=16, threads=1, weight_transfer="disk", **options)


def tokens(llm):
    return llm.generate([PROMPT], GREEDY)[0].outputs[0].token_ids


def parameters(llm):
    """All parameters of the model, packed as they are multiplied with."""
    worker = llm._engine._core.executor._worker  # the worker of an engine in this process
    found = {}
    for group in worker._loaded._filler._groups:
        layers = group.layers if isinstance(group, WeightGroup) else [layer for layer, _ in group._readers]
        for number, layer in enumerate(layers):
            found |= {(group.prefix, number, name): one.clone() for name, one in layer.params.items()}
    return found


def same(first, second):
    """Whether parameters are equal to the last bit."""
    return first.keys() == second.keys() and all(
        torch.equal(one.contiguous().flatten().view(torch.uint8), second[key].contiguous().flatten().view(torch.uint8))
        for key, one in first.items()
    )


def made(name, folder, seed):
    """The model of a method, and how it is asked for."""
    if name in ROUNDED:
        return plain(folder, seed), {"quantization": name}
    return quantized(name, folder, seed), {"plugin_options": FORMS[name].options}


@pytest.mark.covers("QUANT-07", "MODEL-02")
@pytest.mark.parametrize("name", some([*FORMS, *ROUNDED]))
def test_a_model_of_made_up_weights_answers_the_same_each_time(name, tmp_path):
    path, options = made(name, tmp_path / "model", 1)
    bare, answers = without_weights(path, tmp_path / "bare"), []
    for _ in range(2):
        with opened(bare, load_format="dummy", **options) as llm:
            answers.append((tokens(llm), parameters(llm)))
    assert answers[0][0] == answers[1][0] and same(answers[0][1], answers[1][1])


@pytest.mark.covers("WT-01", "QUANT-07")
@pytest.mark.parametrize("name", some([*FORMS, *ROUNDED]))
def test_an_update_gives_the_bytes_of_a_start_with_its_weights(name, tmp_path):
    """What rounds while it loads rounds an update, too; other checkpoints take tensors in their own form."""
    (old, options), (new, _) = (made(name, tmp_path / str(seed), seed) for seed in (1, 2))
    with opened(new, **options) as llm:
        due, answer = parameters(llm), tokens(llm)
    with opened(old, **options) as llm:
        first = parameters(llm)
        llm.call("update_weights", {"path": str(new)})
        assert same(parameters(llm), due) and tokens(llm) == answer
        assert not same(first, due)
        llm.call("update_weights", {"path": str(old)})
        assert same(parameters(llm), first)


@pytest.mark.covers("WT-01")
@pytest.mark.parametrize("method", ROUNDED)
def test_a_rounded_gguf_file_takes_plain_weights(method, tmp_path):
    file = write("gguf", tmp_path / "gguf")
    new = tiny_llama(tmp_path / "new", seed=2, num_hidden_layers=2, max_position_embeddings=64)
    with opened(new, quantization=method) as llm:
        due = parameters(llm)
    with opened(file, quantization=method) as llm:
        llm.call("update_weights", {"path": str(new)})
        assert same(parameters(llm), due)


@pytest.mark.covers("WT-01")
@pytest.mark.parametrize("name", some([name for name in FORMS if name not in TAKES_PLAIN]))
def test_plain_weights_for_codes_are_refused_by_name(name, tmp_path):
    path, options = made(name, tmp_path / "model", 1)
    other = plain(tmp_path / "plain", 2)
    with opened(path, **options) as llm:
        before, answer = parameters(llm), tokens(llm)
        with pytest.raises(CheckpointError, match=r"^CORE-M1\d\d .*'?model\.layers\.0\.\w+\.\w+_proj\.\w+") as refused:
            llm.call("update_weights", {"path": str(other)})
        assert "\n" not in str(refused.value)
        assert same(parameters(llm), before) and tokens(llm) == answer


@pytest.mark.covers("WT-01")
@pytest.mark.parametrize("name", sorted(TAKES_PLAIN))
def test_plain_weights_for_float8_are_rounded_to_its_form(name, tmp_path):
    path, options = made(name, tmp_path / "model", 1)
    other = plain(tmp_path / "plain", 2)
    found = []
    with opened(path, **options) as llm:
        for _ in range(2):
            llm.call("update_weights", {"path": str(other)})
            found.append((tokens(llm), parameters(llm)))
    assert found[0][0] == found[1][0] and same(found[0][1], found[1][1])
