"""One way from the server to its engine: every front end, real or scripted, has the protocol's methods as they are."""

from __future__ import annotations

import asyncio
import inspect

import pytest

from core.frontend.async_llm import AsyncLLM
from core.frontend.prompts import prompt_ids
from core.frontend.request import GenerationRequest
from core.server.interface import ServedLLM
from core_testing.conformance.tools.route_bench import KitLLM


@pytest.mark.parametrize("kind", [AsyncLLM, KitLLM, None], ids=str)
@pytest.mark.parametrize("name", ["submit", "prepare", "render_chat", "tokenize_chat", "tokenize"])
def test_every_front_end_is_asked_in_the_same_way(fake, kind, name):
    own, asked = (inspect.signature(getattr(one, name)).parameters for one in (kind or fake, ServedLLM))
    assert list(own) == list(asked)
    assert [one.default for one in own.values()] == [one.default for one in asked.values()]


def test_outputs_may_be_given_or_asked_for(fake):
    """What is not wanted yet is kept; the end is told by the feed."""
    request = GenerationRequest(prompt=prompt_ids([97]), engine_id="a")

    async def main():
        llm, taken = fake(reply="abcd"), []
        stream = await llm.submit(request, delta=True)
        assert await stream.feed(lambda output: taken.append(output)) is True  # one, and no more for now
        asked = (await anext(stream)).outputs[0].text
        assert await stream.feed(lambda output: taken.append(output) or True) is False
        await stream.aclose()
        await stream.aclose()
        return asked, [output.outputs[0].text for output in taken], llm.aborted

    assert asyncio.run(main()) == ("b", ["a", "c", "d"], [])
