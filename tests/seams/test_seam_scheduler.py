"""A policy outside core decides when to admit, how much of a prompt runs at once, and who gives way."""

from __future__ import annotations

from core import LLM, SamplingParams

GREEDY = SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True)


def _tokens(llm, prompts):
    return [output.outputs[0].token_ids for output in llm.generate(prompts, GREEDY)]


def test_admission_and_chunks_follow_the_policy_and_the_tokens_stay(plugins, llama, prompt):
    plugins("policy")
    prompts = [prompt(length, length) for length in (3, 20, 9, 33, 1, 12)]
    with LLM(llama, dtype="float32", num_blocks=60) as llm:
        plain = _tokens(llm, prompts)
    with LLM(llama, dtype="float32", num_blocks=60, scheduling_policy="gentle") as llm:
        assert _tokens(llm, prompts) == plain
        steps = llm.call("stats")["steps"]
    from seam_policy.policy import ASKED, AT_ONCE, CHUNK

    assert max(running for running, *_ in ASKED["admit"]) == AT_ONCE
    assert {waiting for _, waiting, *_ in ASKED["admit"]} >= {6, 4, 1}
    assert all(budget > 0 for *_, budget in ASKED["admit"])
    # The prompt of 33 tokens alone needs seven chunks of five.
    starts = [computed for computed, budget in ASKED["chunk"] if budget <= 33]
    assert {0, CHUNK, 2 * CHUNK, 6 * CHUNK} <= set(starts)
    assert steps > 3 * 12


def test_the_policy_chooses_who_gives_way(plugins, llama, prompt):
    plugins("policy")
    prompts = [prompt(length, length) for length in (40, 60)]
    with LLM(llama, dtype="float32", max_model_len=128, num_blocks=9, block_size=16) as llm:
        plain = _tokens(llm, prompts)
    options = {"max_model_len": 128, "num_blocks": 9, "block_size": 16, "scheduling_policy": "gentle"}
    params = GREEDY.replace(max_tokens=60)
    with LLM(llama, dtype="float32", **options) as llm:
        outputs = llm.generate(prompts, params)
        assert llm.call("stats")["preemptions"] > 0
    from seam_policy.policy import ASKED

    assert [40, 60] in ASKED["victim"]
    assert [output.outputs[0].token_ids[:12] for output in outputs] == plain
