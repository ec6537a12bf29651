"""The front half of a participant: what travels with a request, what comes back with its end, whom it refuses."""

from __future__ import annotations

import asyncio

import pytest

from core import LLM, SamplingParams
from core.api import PluginError, RequestError
from core.frontend.async_llm import AsyncLLM

METER = """
import msgspec

from core.api import FrontParticipant, Participant, ParticipantSpec, Parts


class Asked(msgspec.Struct):
    tier: int


class Used(msgspec.Struct):
    tier: int
    tokens: int


PARTS = Parts(add=Asked, finished=Used)


class Meter(Participant):
    def __init__(self, setup):
        super().__init__(setup)
        self._tokens = {}

    def settle(self, requests, tokens):
        for request in requests:
            if request is not None and self.name in request.parts:
                self._tokens[request.handle] = self._tokens.get(request.handle, 0) + 1
        return {}

    def finished(self, request):
        asked = request.parts.get(self.name)
        return None if asked is None else Used(asked.tier, self._tokens.pop(request.handle, 0))


class Desk(FrontParticipant):
    def request(self, params, prompt, caller):
        tier = (params.extra_args or {}).get("tier")
        if tier == "broken":
            raise KeyError("tier")
        if tier is not None and tier not in (1, 2):
            raise ValueError(f"there is no tier {tier}")
        return None if tier is None else Asked(tier)

    def finished(self, part):
        if part.tokens == 3:
            raise KeyError("three")
        return {"tier": part.tier, "tokens": part.tokens}


__core_drivers__ = [
    ParticipantSpec(name="meter", impl="meter:Meter", front_impl="meter:Desk", parts="meter:PARTS", api=1,
                    summary="", args=("tier",)),
]
"""
TOKENS = SamplingParams(temperature=0.0, max_tokens=5, ignore_eos=True)
TIER = TOKENS.replace(extra_args={"tier": 2})


@pytest.fixture
def options(tmp_path):
    (tmp_path / "meter.py").write_text(METER)
    files = {"plugin_file": [str(tmp_path / "meter.py")], "participant": ["meter"]}
    return {"dtype": "float32", "num_blocks": 60, "threads": 1, **files}


def told(output):
    return [one.parts for one in output.outputs]


def test_parts_go_with_a_request_and_come_with_its_end(llama, prompt, options):
    with LLM(llama, **options) as llm:
        plain, metered, twice = llm.generate([prompt(9)] * 3, [TOKENS, TIER, TIER.replace(n=2, seed=1, temperature=1)])
        assert plain.outputs[0].token_ids == metered.outputs[0].token_ids
        assert told(plain) == [{}]
        assert told(metered) == [{"meter": {"tier": 2, "tokens": 5}}]
        assert told(twice) == told(metered) * 2
        with pytest.raises(RequestError, match="there is no tier 7"):
            llm.generate([prompt(9)], TOKENS.replace(extra_args={"tier": 7}))
        with pytest.raises(PluginError, match=r"'meter' .*request\(\) raised KeyError"):
            llm.generate([prompt(9)], TOKENS.replace(extra_args={"tier": "broken"}))
        with pytest.raises(RequestError, match="no plugin here reads 'tear'"):
            llm.generate([prompt(9)], TOKENS.replace(extra_args={"tear": 1}))
        assert told(llm.generate([prompt(9)], TIER.replace(max_tokens=3))[0]) == [{}], "a half that fails tells nothing"


def test_parts_cross_to_an_engine_of_its_own_process(llama, prompt, options):
    async def main():
        llm = await AsyncLLM.start(llama, **options)
        try:
            return [output async for output in llm.generate(prompt(9), TIER)][-1]
        finally:
            await llm.close()

    assert told(asyncio.run(main())) == [{"meter": {"tier": 2, "tokens": 5}}]
