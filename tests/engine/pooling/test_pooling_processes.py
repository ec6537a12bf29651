"""The same vectors wherever the worker and the engine run, and options that only a checkpoint can set."""

import asyncio
import json

import numpy as np
import pytest

from core import AsyncLLM, PoolingParams
from core.api.errors import RequestError
from core.frontend.request import GenerationRequest


def test_a_worker_in_a_process_of_its_own(encoder, opened, texts):
    directory, _ = encoder()
    here = opened(directory).embed(texts)
    there = opened(directory, executor="subprocess").embed(texts)
    for one, two in zip(here, there, strict=True):
        np.testing.assert_array_equal(one.outputs.array, two.outputs.array)
    every = opened(directory, executor="subprocess").encode(texts, pooling_task="token_embed")
    assert [len(one.outputs.data) for one in every] == [len(one.prompt_token_ids) for one in every]


@pytest.mark.parametrize("in_process", [True, False])
def test_online_equals_offline(in_process, encoder, opened, texts):
    directory, _ = encoder()
    expected = opened(directory).embed(texts)

    async def go():
        llm = await AsyncLLM.start(str(directory), in_process=in_process, dtype="float32", threads=1)
        try:
            singly = await asyncio.gather(*(llm.encode(text) for text in texts))
            together = await llm.encode(texts)
            with pytest.raises(RequestError, match="does not generate text"):
                await llm.submit(GenerationRequest(prompt=texts[0]))
            return [one[0] for one in singly], together
        finally:
            await llm.close()

    for found in asyncio.run(go()):
        for one, two in zip(expected, found, strict=True):
            np.testing.assert_allclose(one.outputs.array, two.outputs.data, atol=1e-6)


@pytest.mark.covers("POOL-02")
@pytest.mark.parametrize(
    ("setting", "allowed", "refused"),
    [({"matryoshka_dimensions": [8, 16]}, [8, 16, 48], [12]), ({"is_matryoshka": True}, [1, 12, 48], [49])],
)
def test_a_checkpoint_may_allow_shorter_embeddings(setting, allowed, refused, encoder, opened, texts):
    directory, _ = encoder()
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps({**config, **setting}))
    llm = opened(directory)
    whole = llm.embed(texts[0], PoolingParams(normalize=False))[0].outputs.array
    for size in allowed:
        found = llm.embed(texts[0], PoolingParams(dimensions=size))[0].outputs.array
        np.testing.assert_allclose(found, whole[:size] / np.linalg.norm(whole[:size]), atol=1e-5)
    for size in refused:
        with pytest.raises(RequestError) as error:
            llm.embed(texts[0], PoolingParams(dimensions=size))
        assert error.value.param == "dimensions"


def test_the_phases_of_steps_are_timed(encoder, opened, texts):
    directory, _ = encoder()
    llm = opened(directory)
    with llm.profile() as report:
        llm.embed(texts)
    assert {"forward", "pool", "build inputs"} <= report.keys()
    assert report["pool"][0] == report["forward"][0] == 1
