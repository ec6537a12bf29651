"""A model or an attention backend that fails ends the requests of its step, by name; later ones get their tokens."""

from __future__ import annotations

import asyncio
import importlib

import pytest

from core import LLM, AsyncLLM, SamplingParams
from core.api import PluginError

GREEDY = SamplingParams(temperature=0.0, max_tokens=6, ignore_eos=True)
OPTIONS = {"dtype": "float32", "num_blocks": 60, "threads": 1}
LLAMA = "model implementation 'llama' (core-plugin-llama "


@pytest.fixture
def fault():
    """Holds what goes wrong with the tensors of a call; while it is empty nothing does."""
    return []


@pytest.fixture
def attention(plugins, fault, monkeypatch):
    """Install an attention backend whose layers do what `fault` says with their queries."""
    plugins("attention")
    backend = importlib.import_module("seam_attention.backend")
    whole = backend.TracedLayer

    def layer(number, inner):
        made = whole(number, inner)
        plain = made.forward
        made.forward = lambda q, kv, plan: fault[0](plain(q, kv, plan)) if fault else plain(q, kv, plan)
        return made

    monkeypatch.setattr(backend, "TracedLayer", layer)


@pytest.fixture
def model(fault, monkeypatch):
    """Have the attention of every model of the Llama family do what `fault` says with the queries."""
    rope = importlib.import_module("core.layers.rope").RotaryEmbedding
    plain = rope.__call__

    def rotated(self, positions, q, k):
        q, k = plain(self, positions, q, k)
        return (fault[0](q), k) if fault else (q, k)

    monkeypatch.setattr(rope, "__call__", rotated)


def boom(x):
    raise KeyError("boom")


async def _scenario(llama, prompt, fault, wrong):
    """Return the tokens of a request before, what the failing one ended with, and the tokens of both afterwards."""
    llm = await AsyncLLM.start(llama, in_process=True, attention_backend="traced", **OPTIONS)

    async def answer(seed):
        async for output in llm.generate(prompt(9, seed), GREEDY):
            last = output.outputs[0]
        return last

    try:
        before = await answer(1)
        fault.append(wrong)
        failed = await answer(2)
        fault.clear()
        again = [await answer(1), await answer(2)]
        await llm.call("check")
        assert failed.finish_reason == "error" and not failed.token_ids
        return before.token_ids, failed.error, [one.token_ids for one in again]
    finally:
        await llm.close()


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (boom, "CORE-P108 attention backend 'traced' (seam-attention 1.0), attention layer 0 of {}"),
        (lambda out: out[:-1], "CORE-P171 attention backend 'traced' (seam-attention 1.0), attention layer 0 of {}"),
    ],
)
def test_an_attention_backend_that_fails_ends_its_requests_and_no_others(attention, llama, prompt, fault, wrong, told):
    with LLM(llama, **OPTIONS) as llm:
        wanted = [llm.generate([prompt(9, seed)], GREEDY)[0].outputs[0].token_ids for seed in (1, 2)]
    before, said, again = asyncio.run(_scenario(llama, prompt, fault, wrong))
    assert before == wanted[0] and again == wanted
    assert told.format(LLAMA) in said
    assert "KeyError: 'boom'" in said or "its result is (8, 64) float32 on cpu; expected (9, 64)" in said


@pytest.mark.parametrize("wrong", [lambda q: q[:-1], lambda q: q[:, :2], lambda q: q.half(), lambda q: None])
def test_a_model_that_fails_ends_its_requests_and_no_others(attention, model, llama, prompt, fault, wrong):
    _, said, again = asyncio.run(_scenario(llama, prompt, fault, wrong))
    assert f"CORE-P170 {LLAMA}" in said and "called attention layer 0: the query is" in said
    fault.clear()
    with LLM(llama, **OPTIONS) as llm:
        assert again == [llm.generate([prompt(9, seed)], GREEDY)[0].outputs[0].token_ids for seed in (1, 2)]


@pytest.mark.parametrize("wrong", [lambda q: q[:-1], lambda q: q[:, :2], boom])
def test_a_model_that_always_fails_stops_the_start_by_name(model, llama, fault, wrong):
    fault.append(wrong)
    with pytest.raises(PluginError) as caught:
        LLM(llama, **OPTIONS)
    assert caught.value.code in ("CORE-P170", "CORE-P108") and LLAMA in caught.value.message
