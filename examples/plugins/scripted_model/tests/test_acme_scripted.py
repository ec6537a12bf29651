"""What goes in comes out: alone, in batches, in chunks, over the prefix cache, and in low precision."""

from __future__ import annotations

import pytest
from acme_core_scripted.checkpoint import write_checkpoint
from acme_core_scripted.config import ScriptedConfig

from core import LLM, SamplingParams
from core.api import CheckpointError

SCRIPTS = ["Hello.", "", "Zwei Wörter, 日本語 und 😀!", "<think>\nHm.\n</think>\n\n" + "abc " * 60]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return write_checkpoint(tmp_path_factory.mktemp("scripted"), positions=1024)


def said(llm, scripts, **params):
    outputs = llm.generate([f"{text}<|emit|>" for text in scripts], SamplingParams(max_tokens=500, **params))
    return [(output.outputs[0].text, output.outputs[0].finish_reason) for output in outputs]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"dtype": "bfloat16"},
        {"max_chunk": 7, "max_num_seqs": 2, "num_blocks": 70},
        {"prefix_caching": False, "overlap_depth": 0},
    ],
    ids=["plain", "bfloat16", "chunks", "no overlap"],
)
def test_every_script_is_said_and_ended(checkpoint, options):
    with LLM(str(checkpoint), **{"num_blocks": 200, **options}) as llm:
        for _ in range(2):
            assert said(llm, SCRIPTS, temperature=0.0) == [(text, "stop") for text in SCRIPTS]


def test_sampling_changes_nothing(checkpoint):
    with LLM(str(checkpoint), num_blocks=200) as llm:
        assert said(llm, SCRIPTS, temperature=1.5, seed=7) == [(text, "stop") for text in SCRIPTS]


def test_chat_repeats_the_last_message_and_stops_apply(checkpoint):
    with LLM(str(checkpoint), num_blocks=200) as llm:
        messages = [{"role": "user", "content": "not this"}, {"role": "user", "content": "one two three"}]
        assert llm.chat(messages, SamplingParams(max_tokens=50))[0].outputs[0].text == "one two three"
        cut = llm.chat(messages, SamplingParams(max_tokens=50, stop=["two"]))[0].outputs[0]
        assert (cut.text, cut.finish_reason) == ("one ", "stop")


def test_without_its_end_the_script_begins_again(checkpoint):
    with LLM(str(checkpoint), num_blocks=200) as llm:
        params = SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True)
        assert llm.generate(["ab<|emit|>"], params)[0].outputs[0].text == "ababab"  # two of the eight are ends


def test_a_configuration_without_its_marks_is_refused():
    with pytest.raises(CheckpointError, match="begin_token_id") as caught:
        ScriptedConfig.read({"vocab_size": 10, "max_position_embeddings": 64})
    assert caught.value.code == "ACME-M3"
