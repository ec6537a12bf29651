"""A GGUF file of a family's tiny model gives the reference's results."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from core import LLM, SamplingParams
from core_testing.families import logits_of

sys.path.insert(0, str(Path(__file__).parent))
from ggufs import write_gguf

PROMPT = [3 + (7 * i * i + 5 * i) % 370 for i in range(21)]
COUNT, CLOSE = 12, 1e-3


@pytest.mark.covers("MODEL-04", "QUANT-12")
def test_probabilities_of_a_file_equal_those_of_the_reference(stored, tmp_path):
    row, form = stored
    model = row.model()
    write_gguf(tmp_path / "tiny.gguf", row, model, form)
    params = SamplingParams(temperature=0.0, max_tokens=COUNT, ignore_eos=True, logprobs=5, prompt_logprobs=5)
    options = {
        "dtype": "float32",
        "quantization": "cpu_dense,gguf",
        "max_model_len": 96,
        "num_blocks": 20,
        "threads": 1,
    }
    with LLM(str(tmp_path / "tiny.gguf"), **options) as llm:
        (answer,) = llm.generate([{"prompt_token_ids": PROMPT}], params)
    tokens = answer.outputs[0].token_ids
    expected = logits_of(model, PROMPT + tokens)[:-1].log_softmax(-1)
    assert expected[len(PROMPT) - 1 :].argmax(-1).tolist() == tokens
    found = [*answer.prompt_logprobs[1:], *answer.outputs[0].logprobs]
    assert len(found) == len(expected)
    for row, entries in zip(expected, found, strict=True):
        for token, entry in entries.items():
            assert entry.logprob == pytest.approx(float(row[token]), abs=CLOSE)
