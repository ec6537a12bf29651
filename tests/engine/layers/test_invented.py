"""Weights that are made up: each form of weights, equal each time, and only when they are asked for."""

from __future__ import annotations

import json

import pytest
import torch

from core import LLM, SamplingParams
from core.api import PLAIN, CheckpointError, WeightForm
from core.layers.invented import invented_part
from core.ops.products import opened
from core_testing.tinymodels import tiny_model

FORMS = [
    WeightForm(),
    WeightForm(codes="int", bits=4, inputs=32, zeros=True),
    WeightForm(codes="int", bits=8),
    WeightForm(codes="int", bits=3, inputs=48, zeros=True, ordered=True),
    WeightForm(codes="float8_e4m3fn", outputs=128, inputs=128),
    WeightForm(codes="e2m1", bits=4, inputs=32, scale="e8m0"),
    WeightForm(codes="e2m1", bits=4, inputs=16, scale="e4m3"),
    WeightForm(codes="nf4", bits=4, inputs=64),
]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.shown)
def test_numbers_of_each_form_are_near_zero_and_equal_each_time(form):
    made = [opened(invented_part(form, 130, 192, torch.Generator().manual_seed(3)), torch.float32) for _ in "ab"]
    assert torch.equal(*made) and made[0].shape == (130, 192)
    assert made[0].isfinite().all() and 0 < made[0].std() < 0.2


def test_for_codes_that_core_does_not_know_there_are_plain_numbers():
    part = invented_part(WeightForm(codes="gguf:Q4_K"), 2, 256, torch.Generator().manual_seed(3))
    assert part.form == PLAIN and part.codes.shape == (2, 256) and 0 < part.codes.std() < 0.2


@pytest.fixture
def bare(tmp_path):
    directory = tiny_model(tmp_path / "model", "qwen3")
    (directory / "model.safetensors").unlink()
    return directory


DESCRIBED = {
    "gptq": {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": False},
    "fp8 blocks": {"quant_method": "fp8", "weight_block_size": [32, 32]},
    "mxfp8": {"quant_method": "mxfp8"},
    "nvfp4": {"quant_method": "modelopt", "quant_algo": "NVFP4"},
}


@pytest.mark.covers("MODEL-02", "QUANT-07")
@pytest.mark.parametrize("method", ["none", "int8", "fp8", *DESCRIBED])
def test_a_model_without_weights_answers(bare, method):
    if method in DESCRIBED:
        config = json.loads((bare / "config.json").read_text())
        (bare / "config.json").write_text(json.dumps({**config, "quantization_config": DESCRIBED[method]}))
    options = {"quantization": method} if method in ("int8", "fp8") else {}
    params = SamplingParams(temperature=0.0, max_tokens=6, ignore_eos=True)
    answers = []
    for _ in range(2):
        with LLM(str(bare), dtype="float32", num_blocks=20, threads=1, load_format="dummy", **options) as llm:
            answers.append(llm.generate([{"prompt_token_ids": [5, 6, 7]}], params)[0].outputs[0].token_ids)
    assert answers[0] == answers[1] and len(answers[0]) == 6


def test_nobody_gets_made_up_weights_unasked(bare):
    with pytest.raises(CheckpointError, match="CORE-M134"):
        LLM(str(bare), dtype="float32", num_blocks=20, threads=1)
