"""Each check of I/O processors finds the one that is wrong in its way, and only that check does."""

from __future__ import annotations

import pytest

from core_testing.conformance import Level

MANIFEST = """
from core.api import IOProcessorSpec

SPEC = IOProcessorSpec(name="broken", impl="PKG.processor:Processor", api=1, summary="s")
"""

PROCESSOR = """
import numpy as np
from core.api import IOPrompts

class Processor:
    def __init__(self, ctx):
        self.last = ctx.labels

    def parse_request(self, data):
        {parse}
        if not isinstance(data, dict) or not isinstance(data.get("texts"), list) or not data["texts"]:
            raise ValueError("wants texts")
        if not all(isinstance(text, str) and text for text in data["texts"]):
            raise ValueError("{words}")
        {keep}
        return data

    async def pre_process(self, request):
        {pre}
        return IOPrompts(request.data["texts"])

    def post_process(self, request, outputs):
        vectors = np.array([one.data for one in outputs])
        {post}
        return {"sums": vectors.sum(1), "texts": request.data["texts"]}
"""

SAMPLES = """
from core_testing.conformance import IOSample

def samples():
    yield IOSample(
        "two texts",
        {"texts": ["a", "b"]},
        accepts=lambda answer: answer["texts"] == ["a", "b"] and len(answer["sums"]) == 2,
        refused=[{"texts": [""]}],
        others=[{"texts": ["a"]}, {"texts": ["x"] * 300}],
    )
"""

CASES = {
    "samples_are_answered": {"post": "vectors = vectors[:1]"},
    "refused_data_is_refused": {"words": ""},
    "strange_data_is_the_clients_fault": {"parse": "data == {} or data['texts'] if isinstance(data, dict) else 0"},
    "answers_do_not_depend_on_others": {
        "keep": "self.last = data",
        "post": "vectors = vectors if self.last is request.data else vectors + 1",
        "pre": "import asyncio; await asyncio.sleep(0.02)",
    },
}


@pytest.fixture
def processor(make_plugin):
    def make(samples: str = SAMPLES, **given: str):
        source = PROCESSOR
        for key in ("parse", "keep", "pre", "post"):
            source = source.replace("{" + key + "}", given.get(key, "pass"))
        source = source.replace("{words}", given.get("words", "an empty text"))
        modules = {"manifest": MANIFEST, "processor": source} | ({"conformance": samples} if samples else {})
        return make_plugin("core.io_processors", modules)

    return make


def test_a_sound_processor_passes(processor):
    report = processor().report("io_processors", "spawn")
    assert (report.failures, report.level) == ([], Level.L1)


@pytest.mark.parametrize("check", CASES)
def test_io_processors(processor, check):
    assert set(processor(**CASES[check]).failing("io_processors")) == {check}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"pre": "return request.data"}, "not IOPrompts"),
        ({"pre": "return IOPrompts(request.data['texts'], params={'size': 3})"}, "parameters that do not exist"),
        ({"pre": "return IOPrompts([[10**7]])"}, "out of the vocabulary"),
        ({"post": "return {1}"}, "cannot be written as JSON"),
    ],
)
def test_what_fails_says_why(processor, given, said):
    assert said in processor(**given).failing("io_processors")["samples_are_answered"]


def test_without_samples_nothing_can_be_said(processor):
    assert "it ships no IOSample" in {one.because for one in processor("").report("io_processors").not_run}.pop()
