"""An output that repeats itself is ended; the scanner agrees with looking at the whole output each time."""

from __future__ import annotations

import random

import pytest

from core.api.errors import RequestError
from core.api.sampling_params import RepetitionDetection, SamplingParams
from core.frontend.repetition import RepetitionScanner


def repeats(tokens, wanted):
    """Look at the end of a whole output."""
    for size in wanted.sizes:
        run = tokens[-size * wanted.min_count :]
        if len(run) == size * wanted.min_count and run == run[-size:] * wanted.min_count:
            return True
    return False


@pytest.mark.parametrize("seed", range(12))
def test_it_finds_what_a_full_look_finds(seed):
    pick = random.Random(seed)
    longest = pick.choice([1, 2, 3, 7])
    wanted = RepetitionDetection(longest, pick.randint(0, longest), pick.randint(2, 4))
    scanner, tokens = RepetitionScanner(wanted), []
    for _ in range(400):
        pattern = [pick.randrange(3) for _ in range(pick.randint(1, 8))]
        for token in pattern * pick.randint(1, 4):
            tokens.append(token)
            assert scanner.push(token) is repeats(tokens, wanted), tokens[-30:]


def test_parameters():
    given = {"max_pattern_size": 3, "min_count": 2}
    assert SamplingParams(repetition_detection=given).repetition_detection == RepetitionDetection(3, 0, 2)
    assert SamplingParams(repetition_detection={"min_count": 2}).repetition_detection is None
    for wrong in (
        {"max_pattern_size": 3},
        {"max_pattern_size": 3, "min_count": 1},
        {"max_pattern_size": 2, "min_pattern_size": 3, "min_count": 2},
        {"max_pattern_size": -1},
        {"max_pattern_size": 5000, "min_count": 2},
        {"max_pattern_size": True, "min_count": 2},
        {"size": 3},
        [1],
    ):
        with pytest.raises(RequestError) as caught:
            SamplingParams(repetition_detection=wrong)
        assert caught.value.param == "repetition_detection"


WANTED = {"max_pattern_size": 3, "min_count": 3}


def test_an_answer_that_repeats_itself_is_ended(offline):
    llm, core = offline("x yz" + "ab" * 20)
    output = llm.generate("p", SamplingParams(max_tokens=40, repetition_detection=WANTED))[0].outputs[0]
    assert output.text == "x yzababab"
    assert (output.finish_reason, output.stop_reason) == ("repetition", "repetition_detected")
    assert not core.running  # the engine was told
    late = SamplingParams(max_tokens=40, min_tokens=14, repetition_detection=WANTED)
    assert llm.generate("p", late)[0].outputs[0].text == "x yz" + "ab" * 5


def test_other_ends_go_first(offline):
    llm, _ = offline("ababab", eos=True)
    params = SamplingParams(max_tokens=6, repetition_detection=WANTED)
    assert llm.generate("p", params)[0].outputs[0].finish_reason == "length"
    stopped = params.replace(max_tokens=9, stop=["bab"])
    output = llm.generate("p", stopped)[0].outputs[0]
    assert (output.text, output.finish_reason, output.stop_reason) == ("a", "stop", "bab")
    ids_only = params.replace(max_tokens=9, detokenize=False)
    assert llm.generate("p", ids_only)[0].outputs[0].finish_reason == "repetition"
