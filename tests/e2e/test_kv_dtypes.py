"""Generation on the demo model with keys and values of every dtype."""

from __future__ import annotations

import pytest

from core import LLM, SamplingParams

OPTIONS = {"threads": 1, "max_model_len": 512, "num_blocks": 64, "max_num_seqs": 8}

# Measured in float32 on 141 tokens of text: 0.001 (float16), 0.035, 0.121, 0.199. Each bound is about one and a half
# times that. What products in bfloat16 add depends on the instruction set: 0.089 with AVX-512 BF16.
DRIFT = {"float16": 0.002, "int8": 0.055, "fp8": 0.18, "fp8_e5m2": 0.30}


def _logprobs(text: str, dtype: str, kv_dtype: str = "auto") -> list[float]:
    """The log-probabilities of a text's own tokens."""
    with LLM("smollm2", dtype=dtype, kv_dtype=kv_dtype, **OPTIONS) as llm:
        params = SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True, prompt_logprobs=1)
        output = llm.generate([text], params)[0]
    assert len(output.outputs[0].token_ids) == 8
    pairs = zip(output.prompt_logprobs[1:], output.prompt_token_ids[1:])
    return [scores[token].logprob for scores, token in pairs]


@pytest.fixture(scope="module")
def text(prompts):
    return " ".join(prompts)


@pytest.fixture(scope="module")
def exact(text):
    return _logprobs(text, "float32")


def _drift(found: list[float], exact: list[float]) -> float:
    return sum(abs(one - other) for one, other in zip(found, exact, strict=True)) / len(exact)


@pytest.fixture(scope="module")
def unrounded(exact, text):
    """The drift of each compute dtype whose keys and values are kept as they are."""
    return {"float32": 0.0, "bfloat16": _drift(_logprobs(text, "bfloat16"), exact)}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("kv_dtype", DRIFT)
def test_rounded_keys_and_values_change_log_probabilities_little(exact, unrounded, text, kv_dtype, dtype):
    drift = _drift(_logprobs(text, dtype, kv_dtype), exact)
    assert drift <= unrounded[dtype] + DRIFT[kv_dtype]
    assert drift > 1e-4, "nothing was rounded"


@pytest.mark.parametrize("kv_dtype", ["int8", "fp8"])
def test_the_prefix_cache_does_not_change_tokens(prompts, kv_dtype):
    shared = " ".join(prompts[:4])
    asked = [f"{shared} {prompt}" for prompt in prompts[6:9]]
    params = SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True)
    found, hits = [], []
    for prefix_caching in (False, True):
        options = {"dtype": "float32", "kv_dtype": kv_dtype, "prefix_caching": prefix_caching, **OPTIONS}
        with LLM("smollm2", **options) as llm:
            llm.generate([shared], params)
            found.append([output.outputs[0].token_ids for output in llm.generate(asked, params)])
            hits.append(llm.call("stats")["prefix_hits"])
    assert found[0] == found[1]
    assert hits[0] == 0 and hits[1] > 0


@pytest.mark.parametrize(("kv_dtype", "ratio"), [("float16", 1.0), ("int8", 68 / 128), ("fp8", 0.5)])
def test_a_budget_holds_more_tokens_of_smaller_elements(kv_dtype, ratio):
    blocks = {}
    for one in ("auto", kv_dtype):
        options = {"dtype": "bfloat16", "kv_memory": "8MiB", "threads": 1, "max_model_len": 64}
        with LLM("smollm2", kv_dtype=one, max_num_seqs=512, **options) as llm:
            blocks[one] = llm.call("stats")["blocks_total"] + 1
    assert blocks[kv_dtype] == pytest.approx(blocks["auto"] / ratio, abs=1.5)
