"""A context that the user stretches: the whole engine beside transformers, and what is refused before it starts."""

from __future__ import annotations

import json

import pytest
import torch

from core import LLM, SamplingParams
from core.api import ConfigError
from core.cli.main import main
from core_testing.tinymodels import VOCAB_SIZE, reference_model, tiny_llama

ORIGINAL = 32
HALF = 8
RULES = {
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": ORIGINAL},
    "linear": {"rope_type": "linear", "factor": 4.0},
    "longrope": {
        "rope_type": "longrope",
        "factor": 4.0,
        "original_max_position_embeddings": ORIGINAL,
        "short_factor": [1.0] * HALF,
        "long_factor": [1.0 + 0.5 * index for index in range(HALF)],
    },
}
PROMPT = [(7 * index * index + 3 * index + 11) % VOCAB_SIZE for index in range(90)]
GREEDY = SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True)


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    """A checkpoint with a context of 32 tokens and no scaling."""
    return str(tiny_llama(tmp_path_factory.mktemp("short") / "llama", max_position_embeddings=ORIGINAL))


@pytest.mark.covers("MODEL-04")
@pytest.mark.parametrize("rule", RULES)
def test_tokens_beyond_the_original_context_equal_transformers(rule, model):
    parameters = {"rope_theta": 10000.0, **RULES[rule]}
    reference = reference_model("llama", rope_parameters=parameters, max_position_embeddings=4 * ORIGINAL)
    expected = reference.generate(
        torch.tensor([PROMPT]), max_new_tokens=12, do_sample=False, eos_token_id=None, pad_token_id=0
    )[0, len(PROMPT) :].tolist()
    options = {"dtype": "float32", "threads": 1, "num_blocks": 64, "block_size": 16, "max_num_batched_tokens": 48}
    with LLM(model, rope_scaling=RULES[rule], max_model_len=4 * ORIGINAL, **options) as llm:
        # The second time most of the prompt comes from the prefix cache, and a short one is beside it.
        for prompts in ([PROMPT], [PROMPT, PROMPT[:5]]):
            assert llm.generate(prompts, GREEDY)[0].outputs[0].token_ids == expected
        assert llm.config.shape.max_positions == 4 * ORIGINAL


def test_without_scaling_the_context_is_the_checkpoints(model):
    with pytest.raises(ConfigError, match=r"CORE-C110 .* 33 is greater than the 32 positions.*--rope-scaling"):
        LLM(model, max_model_len=33)


def why(capsys, *words: str) -> tuple[int, dict]:
    status = main(["plugins", "why", "--json", *words])
    return status, json.loads(capsys.readouterr().out)


def test_why_shows_the_scaled_context(model, capsys):
    status, shown = why(capsys, model, "--rope-scaling", json.dumps(RULES["yarn"]))
    assert (status, shown["config"]["max_model_len"]) == (0, 4 * ORIGINAL)
    (notes,) = [one["notes"] for one in shown["selections"] if one["group"] == "core.models"]
    assert notes == [
        "rotary scaling: yarn, a context of 128 tokens, 32 before scaling",
        f'changed by the user: {{"rope_scaling": {json.dumps(RULES["yarn"])}}}',
    ]


@pytest.mark.parametrize(
    ("scaling", "words"),
    [
        ({"rope_type": "foo"}, "rotary scaling 'foo' is not supported; supported: default, dynamic, linear"),
        ({"rope_type": "yarn"}, "rotary scaling 'yarn' needs a number 'factor'"),
    ],
)
def test_a_scaling_that_nobody_computes_is_refused_before_the_engine_starts(model, capsys, scaling, words):
    status, shown = why(capsys, model, "--rope-scaling", json.dumps(scaling))
    assert status == 1
    assert shown["error"]["code"] == "CORE-M125" and words in shown["error"]["message"]
    (rows,) = [one["candidates"] for one in shown["selections"] if one["group"] == "core.models"]
    assert words in next(row["reasons"][0] for row in rows if row["name"] == "llama")
