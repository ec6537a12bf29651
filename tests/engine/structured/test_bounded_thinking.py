"""A bounded thought in a real engine, with and without a grammar and structured-output backends."""

from __future__ import annotations

import pytest

from core import LLM, SamplingParams
from core.api.errors import RequestError
from core.api.grammars import Thinking

PROMPT = {"prompt_token_ids": [5, 9, 14, 3, 3, 77, 8]}
END = " and then"
OPEN = Thinking(END, open=True)


@pytest.fixture(scope="module", params=[True, False], ids=["backend", "no backend"])
def llm(tiny, request):
    chosen = {} if request.param else {"structured_output": "none"}
    with LLM(tiny, dtype="float32", num_blocks=40, max_num_seqs=4, **chosen) as made:
        yield made


def ids(llm, **changes):
    params = SamplingParams(**{"temperature": 0.0, "max_tokens": 12, "ignore_eos": True, **changes})
    return [one.token_ids for one in llm.generate(PROMPT, params)[0].outputs]


def test_the_end_is_written_and_the_model_goes_on_from_there(llm):
    end = llm.get_tokenizer().encode(END, add_special_tokens=False)
    [free] = ids(llm)
    [bounded] = ids(llm, thinking_token_budget=3, thinking=OPEN)
    assert bounded[: 3 + len(end)] == [*free[:3], *end]
    after = {"prompt_token_ids": [*PROMPT["prompt_token_ids"], *bounded[: 3 + len(end)]]}
    params = SamplingParams(temperature=0.0, max_tokens=9 - len(end), ignore_eos=True)
    assert llm.generate(after, params)[0].outputs[0].token_ids == bounded[3 + len(end) :]


def test_every_sequence_and_every_way_to_sample(llm):
    end = llm.get_tokenizer().encode(END, add_special_tokens=False)
    fields = {"n": 3, "temperature": 1.0, "seed": 4, "logprobs": 1, "thinking": OPEN}
    free, bounded = ids(llm, **fields), ids(llm, thinking_token_budget=2, **fields)
    assert [one[: 2 + len(end)] for one in bounded] == [[*one[:2], *end] for one in free]
    assert ids(llm, thinking_token_budget=-1, **fields) == free
    assert ids(llm, thinking_token_budget=12, **fields) == free


def test_a_vocabulary_without_marks_says_so(llm):
    with pytest.raises(RequestError, match="reasoning-parser") as caught:
        ids(llm, thinking_token_budget=3)
    assert (caught.value.param, caught.value.code) == ("thinking_token_budget", "unsupported_parameter")


def test_a_grammar_begins_behind_the_end(tiny):
    with LLM(tiny, dtype="float32", num_blocks=40, max_num_seqs=2) as llm:
        [free] = ids(llm)
        grammar = SamplingParams(grammar={"choice": ["red"]}).grammar.replace(thinking=OPEN)
        params = SamplingParams(temperature=0.0, max_tokens=30, thinking_token_budget=4, grammar=grammar)
        output = llm.generate(PROMPT, params)[0].outputs[0]
    assert output.token_ids[:4] == free[:4]
    assert (output.text.partition(END)[2], output.finish_reason) == ("red", "stop")
