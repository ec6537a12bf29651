"""Each family's logits are those of transformers, in one piece, in chunks and token by token."""

from __future__ import annotations

import json
import shutil

import pytest
import torch

from core_testing.tinymodels import FAMILIES, VOCAB_SIZE, reference_model

TOKENS = [(7 * index * index + 3 * index + 11) % VOCAB_SIZE for index in range(40)]
CLOSE = {"rtol": 1e-4, "atol": 1e-4}


def reference_logits(family: str, tokens=TOKENS, **overrides) -> torch.Tensor:
    with torch.no_grad():
        return reference_model(family, **overrides)(torch.tensor([tokens])).logits[0]


@pytest.mark.covers("MODEL-04")
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_equal_transformers_in_prefill_chunks_and_decode(family, checkpoint, load, runner):
    expected = reference_logits(family)
    assert expected.std() > 0.1  # logits that are all alike would prove nothing
    loaded = load(checkpoint(family))
    torch.testing.assert_close(runner(loaded).run(TOKENS), expected, **CLOSE)
    pieces = runner(loaded)
    steps = [TOKENS[:13], TOKENS[13:29], *([token] for token in TOKENS[29:])]
    torch.testing.assert_close(torch.cat([pieces.run(step) for step in steps]), expected, **CLOSE)


@pytest.mark.covers("MODEL-04")
@pytest.mark.parametrize("family", ["llama", "mistral_window", "qwen2", "qwen3", "gemma2", "gemma3"])
def test_greedy_tokens_equal_transformers(family, checkpoint, load, runner):
    model = reference_model(family)
    expected = model.generate(
        torch.tensor([TOKENS[:9]]), max_new_tokens=12, do_sample=False, eos_token_id=None, pad_token_id=0
    )[0, 9:].tolist()
    run = runner(load(checkpoint(family)))
    tokens = [int(run.run(TOKENS[:9])[-1].argmax())]
    while len(tokens) < 12:
        tokens.append(int(run.run(tokens[-1:])[-1].argmax()))
    assert tokens == expected


@pytest.mark.parametrize(
    "scaling",
    [
        {"rope_type": "linear", "factor": 2.0},
        {"rope_type": "dynamic", "factor": 2.0},
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16},
    ],
    ids=lambda scaling: scaling["rope_type"],
)
def test_rotary_scaling_equals_transformers(scaling, checkpoint, load, runner):
    scaling = {"rope_theta": 500.0, **scaling}
    expected = reference_logits("llama", rope_parameters=scaling)
    logits = runner(load(checkpoint("llama", rope_parameters=scaling))).run(TOKENS)
    torch.testing.assert_close(logits, expected, **CLOSE)
    assert not torch.allclose(logits, reference_logits("llama"), **CLOSE)


def test_a_configuration_of_transformers_4_gives_the_same_logits(checkpoint, load, runner, tmp_path):
    directory = tmp_path / "old"
    shutil.copytree(checkpoint("llama3"), directory)
    config = json.loads((directory / "config.json").read_text())
    parameters = config.pop("rope_parameters")
    config |= {
        "rope_theta": parameters.pop("rope_theta"),
        "rope_scaling": parameters,
        "torch_dtype": config.pop("dtype"),
    }
    (directory / "config.json").write_text(json.dumps(config))
    logits = runner(load(directory)).run(TOKENS)
    torch.testing.assert_close(logits, reference_logits("llama3"), **CLOSE)


def test_bfloat16_stays_near_float32(checkpoint, load, runner):
    directory = checkpoint("qwen3")
    exact = runner(load(directory)).run(TOKENS)
    rounded = runner(load(directory, dtype="bfloat16")).run(TOKENS)
    assert rounded.dtype == torch.bfloat16
    assert torch.nn.functional.cosine_similarity(rounded.float(), exact).min() > 0.99
