"""Logits and tokens are those of transformers on the same random checkpoint."""

from __future__ import annotations

import json

import pytest
import torch
from acme_core_gpt2.config import GPT2Config, shape
from safetensors.torch import load_file, save_file
from transformers import GPT2Config as ReferenceConfig
from transformers import GPT2LMHeadModel

from core import LLM, SamplingParams
from core.api import CheckpointError
from core_testing.tinymodels import VOCAB_SIZE, tiny_tokenizer

PROMPT = [(7 * index * index + 3 * index + 11) % VOCAB_SIZE for index in range(40)]
SIZES = {"vocab_size": VOCAB_SIZE, "n_positions": 128, "n_embd": 48, "n_layer": 3, "n_head": 4}


def reference(**changes):
    torch.manual_seed(0)
    config = ReferenceConfig(**SIZES, bos_token_id=0, eos_token_id=2, **changes)
    model = GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(1.0 if ".ln_" in name and name.endswith("weight") else 0.0, 0.2)
    return model


def write(model, directory):
    model.save_pretrained(directory)
    return tiny_tokenizer(directory)


def prompt_scores(llm, prompt):
    """The log-probability that the engine gives to every token of the prompt after the first."""
    params = SamplingParams(temperature=0.0, max_tokens=1, prompt_logprobs=0)
    output = llm.generate([{"prompt_token_ids": prompt}], params)[0]
    return torch.tensor([next(iter(place.values())).logprob for place in output.prompt_logprobs[1:]])


@pytest.mark.parametrize(
    "changes",
    [{}, {"n_inner": 64, "activation_function": "relu"}, {"scale_attn_weights": False}, {"tie_word_embeddings": False}],
    ids=["plain", "relu", "unscaled", "untied"],
)
def test_every_prompt_token_scores_as_in_transformers(changes, tmp_path):
    model = reference(**changes)
    with torch.no_grad():
        logits = model(torch.tensor([PROMPT])).logits[0].log_softmax(-1)
    assert logits.exp().max() > 0.05  # scores that are all alike would prove nothing
    expected = logits[:-1].gather(1, torch.tensor(PROMPT[1:])[:, None])[:, 0]
    with LLM(str(write(model, tmp_path)), dtype="float32", num_blocks=16, max_chunk=13) as llm:
        torch.testing.assert_close(prompt_scores(llm, PROMPT), expected, rtol=1e-4, atol=1e-4)


def test_greedy_tokens_equal_transformers_in_a_batch(tmp_path):
    model = reference()
    prompts = [PROMPT[:length] for length in (1, 5, 17, 32)]
    options = {"max_new_tokens": 12, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    expected = [model.generate(torch.tensor([p]), **options)[0, len(p) :].tolist() for p in prompts]
    with LLM(str(write(model, tmp_path)), dtype="float32", num_blocks=64, model_impl="acme_gpt2") as llm:
        params = SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True)
        outputs = llm.generate([{"prompt_token_ids": prompt} for prompt in prompts], params)
    assert [output.outputs[0].token_ids for output in outputs] == expected


def test_the_oldest_checkpoints_load_too(tmp_path):
    model = reference()
    directory = write(model, tmp_path)
    file = directory / "model.safetensors"
    old = {name.removeprefix("transformer."): value for name, value in load_file(file).items()}
    old["h.0.attn.bias"] = torch.ones(1, 1, 4, 4)
    save_file(old, file, metadata={"format": "pt"})
    with torch.no_grad():
        expected = model(torch.tensor([PROMPT])).logits[0, -1].argmax().item()
    with LLM(str(directory), dtype="float32", num_blocks=16) as llm:
        output = llm.generate([{"prompt_token_ids": PROMPT}], SamplingParams(temperature=0.0, max_tokens=1))[0]
    assert output.outputs[0].token_ids == [expected]


def test_the_shape_is_read_from_the_configuration():
    facts = shape(SIZES)
    assert (facts.max_positions, facts.num_layers, facts.num_kv_heads, facts.head_dim) == (128, 3, 4, 12)
    assert GPT2Config.read(SIZES).inner_size == 192


@pytest.mark.parametrize(
    ("change", "code", "word"),
    [
        ({"n_head": 5}, "ACME-M1", "5 heads"),
        ({"n_layer": 0}, "CORE-M126", "n_layer"),
        ({"n_positions": "many"}, "CORE-M126", "n_positions"),
        ({"reorder_and_upcast_attn": True}, "ACME-M2", "reorder_and_upcast_attn"),
    ],
)
def test_what_it_cannot_run_is_refused_by_name(change, code, word):
    with pytest.raises(CheckpointError, match=word) as caught:
        GPT2Config.read(json.loads(json.dumps(SIZES | change)))
    assert caught.value.code == code
