"""The same tokens, however the work is cut into steps."""

from __future__ import annotations

import itertools

import pytest

from core import LLM, SamplingParams
from core_testing.tinymodels import tiny_llama

GREEDY = SamplingParams(temperature=0.0, max_tokens=24, ignore_eos=True)
LENGTHS = [1, 2, 3, 5, 8, 13, 16, 17, 21, 31, 32, 33, 40, 47, 64, 90]


def _prompts() -> list[dict[str, list[int]]]:
    shared = [3 + (i * 29) % 90 for i in range(32)]
    return [
        {"prompt_token_ids": (shared + [3 + (i * 7 + length) % 90 for i in range(length)])[: max(length, 1)]}
        for length in LENGTHS
    ]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return tiny_llama(tmp_path_factory.mktemp("models") / "llama")


def _tokens(checkpoint, **options) -> tuple[list[list[int]], dict[str, int]]:
    with LLM(str(checkpoint), dtype="float32", **{"num_blocks": 200, "max_num_seqs": 16, **options}) as llm:
        outputs = llm.generate(_prompts(), GREEDY)
        return [output.outputs[0].token_ids for output in outputs], llm.call("stats")


@pytest.fixture(scope="module")
def alone(checkpoint):
    """Each prompt by itself, nothing shared, nothing overlapped: the plainest run there is."""
    options = {"prefix_caching": False, "overlap_depth": 0, "num_blocks": 200, "max_num_seqs": 1}
    with LLM(str(checkpoint), dtype="float32", **options) as llm:
        return [llm.generate([prompt], GREEDY)[0].outputs[0].token_ids for prompt in _prompts()]


@pytest.mark.covers("ENG-01")
@pytest.mark.parametrize(("chunk", "prefix", "depth"), list(itertools.product((1, 7, 64, None), (True, False), (0, 1))))
def test_chunks_prefix_cache_and_overlap_do_not_change_tokens(checkpoint, alone, chunk, prefix, depth):
    tokens, _ = _tokens(checkpoint, max_chunk=chunk, prefix_caching=prefix, overlap_depth=depth)
    assert tokens == alone


def test_preemption_does_not_change_tokens(checkpoint, alone):
    tokens, stats = _tokens(checkpoint, num_blocks=14, max_model_len=128)
    assert tokens == alone
    assert stats["preemptions"] > 0


def test_a_worker_in_its_own_process_gives_the_same_tokens(checkpoint, alone):
    tokens, _ = _tokens(checkpoint, executor="subprocess")
    assert tokens == alone


def test_kv_blocks_that_come_back_from_host_memory_give_the_same_tokens(checkpoint, alone):
    blocks = {"num_blocks": 24, "block_size": 8, "max_num_seqs": 2, "max_model_len": 160}
    options = {"kv_connector": ["cpu_offload"], **blocks}
    with LLM(str(checkpoint), dtype="float32", **options) as llm:
        for _ in range(2):  # the second round finds its prompts in host memory, long evicted from the device
            outputs = llm.generate(_prompts(), GREEDY)
            assert [output.outputs[0].token_ids for output in outputs] == alone
        assert llm.call("participant_stats")["cpu_offload"]["loaded"] > 0


@pytest.mark.covers("KV-03")
def test_requests_with_one_prefix_in_host_memory_load_it_once(checkpoint):
    prefix = [3 + i * 5 % 90 for i in range(80)]
    prompts = [{"prompt_token_ids": [*prefix, 4 + i]} for i in range(4)]
    others = [{"prompt_token_ids": [3 + (i * 7 + start) % 90 for i in range(150)]} for start in (1, 2)]
    blocks = {"num_blocks": 24, "block_size": 8, "max_num_seqs": 3, "max_model_len": 160}
    with LLM(str(checkpoint), dtype="float32", kv_connector=["cpu_offload"], **blocks) as llm:
        alone = [llm.generate([prompt], GREEDY)[0].outputs[0].token_ids for prompt in prompts]
        for prompt in others:  # the prefix leaves the device
            llm.generate([prompt], SamplingParams(temperature=0, max_tokens=2))

        def loaded():
            return llm.call("participant_stats")["cpu_offload"]["loaded"]

        before = loaded()
        answers = llm.generate(prompts[:3], GREEDY)
        assert loaded() - before == 10
        answers += llm.generate(prompts[3:], GREEDY)
        assert loaded() - before == 10
        assert [answer.outputs[0].token_ids for answer in answers] == alone
