"""Work per step of the front end: one pass over the tokens of all requests, one step of the detokenizer each."""

from __future__ import annotations

import asyncio
from collections import Counter

from core import SamplingParams
from core.frontend.outputs import OutputProcessor
from core_tokenizers.streams import ByteStream


def test_every_token_is_detokenized_once_in_one_pass_per_step(online, monkeypatch):
    counts: Counter[str] = Counter()

    def counted(owner, name):
        original = getattr(owner, name)

        def call(self, *args, **kwargs):
            counts[name] += 1
            return original(self, *args, **kwargs)

        monkeypatch.setattr(owner, name, call)

    counted(OutputProcessor, "process")
    counted(ByteStream, "step")
    requests, tokens = 5, 12

    async def main():
        llm, _ = online("hello world and more", eos=False)
        params = SamplingParams(max_tokens=tokens)

        async def read(i):
            return [output async for output in llm.generate({"prompt_token_ids": [3 + i]}, params, delta=True)]

        outputs = await asyncio.gather(*(read(i) for i in range(requests)))
        await llm.close()
        return outputs

    outputs = asyncio.run(asyncio.wait_for(main(), 20))
    assert sum(len(output.outputs[0].token_ids) for one in outputs for output in one) == requests * tokens
    # All requests are in the first step already: as many passes as tokens of one, not of all.
    assert counts["process"] == tokens
    # One look at each prompt's single token gives the stream its context.
    assert counts["step"] == requests * (tokens + 1)


def test_a_request_without_text_is_not_detokenized(offline, monkeypatch):
    monkeypatch.setattr(ByteStream, "step", lambda *_: 1 / 0)
    llm, _ = offline(eos=False)
    output = llm.generate(["hello"], SamplingParams(max_tokens=4, detokenize=False))[0]
    assert len(output.outputs[0].token_ids) == 4 and output.outputs[0].text == ""
