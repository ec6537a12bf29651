"""What the format reads, against its definition."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch
from core_plugin_modelopt.config import ALGORITHMS, reasons_against, refine
from core_plugin_modelopt.conformance import samples
from core_plugin_modelopt.scheme import ModelOpt

from core.api import PLAIN, CheckpointError, LayerSite, ProbeResult, QuantContext, QuantRequest
from core.ops.rounding import rounded
from core_testing.layers import sample_layer
from core_testing.samples import compare_sample, redescribed

SAMPLES = {one.name: one for one in samples()}
FIXED = {"NVFP4": 0.002, "FP8": 0.01}
LINEAR = LayerSite("linear", "model.layers.0.mlp.gate_proj", 64, (("", 8),))


def made(config, **options):
    return ModelOpt(QuantContext(torch.device("cpu"), torch.float32, {"quant_method": "modelopt", **config}, options))


@pytest.mark.covers("QUANT-10", "QUANT-06")
@pytest.mark.parametrize("name", ALGORITHMS)
def test_layers_compute_what_the_format_means(name, tmp_path):
    sample, kind = SAMPLES[name], ALGORITHMS[name].activations
    fixed = torch.tensor(FIXED[name]) if name in FIXED else None
    rounds = None if kind == "as_is" else partial(rounded, activations=kind, input_scale=fixed)
    compare_sample(ModelOpt, replace(sample, layers=sample.layers[:3]), tmp_path, rounds)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_activations_may_be_left_as_they_are(name):
    form = made({"quant_algo": name}, activations="as_is").form(LINEAR, "")
    assert form == ALGORITHMS[name].replace(activations="as_is")


def test_what_the_checkpoint_leaves_plain_has_the_plain_form():
    form = made({"quant_algo": "NVFP4", "exclude_modules": ["lm_head", "*.o_proj", "model.layers.1*"]})
    assert form.form(LINEAR, "").codes == "e2m1"
    for kind, path in (
        ("linear", "model.layers.0.self_attn.o_proj"),
        ("linear", "model.layers.1.mlp.up_proj"),
        ("lm_head", "lm_head"),
        ("router", "model.layers.0.mlp.gate"),
    ):
        assert form.form(LayerSite(kind, path, 64, (("", 8),)), "") == PLAIN, path


def test_older_methods_name_their_algorithm():
    assert made({"quant_method": "modelopt_fp4"}).form(LINEAR, "") == ALGORITHMS["NVFP4"]
    assert made({"quant_method": "modelopt_mxfp8"}).form(LINEAR, "") == ALGORITHMS["MXFP8"]


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"quant_algo": "NVFP4_AWQ"}, "NVFP4_AWQ"),
        ({"quant_algo": "MIXED_PRECISION"}, "MIXED_PRECISION"),
        ({}, "None"),
        ({"quant_algo": "NVFP4", "group_size": 32}, "groups of 32 inputs, not 16"),
    ],
)
def test_other_algorithms_are_refused_by_name(config, named):
    with pytest.raises(CheckpointError, match=named):
        made(config)
    given = {"quant_method": "modelopt", **config}
    verdict = refine(QuantRequest("modelopt", "cpu", "auto", given), ProbeResult(available=True))
    assert list(verdict.reasons) == reasons_against(given) != []


@pytest.mark.parametrize(
    ("sample", "suffix", "tensor"),
    [
        ("NVFP4", "weight", torch.zeros(144, 128, dtype=torch.int8)),
        ("NVFP4", "weight_scale", torch.zeros(144, 16)),
        ("FP8", "weight", torch.zeros(144, 256)),
        ("MXFP8", "weight_scale", torch.zeros(144, 8)),
    ],
)
def test_tensors_that_contradict_the_settings_are_refused_by_name(sample, suffix, tensor, tmp_path):
    site = SAMPLES[sample].layers[2]
    broken = redescribed(SAMPLES[sample], {f"{site.prefix}.{suffix}": tensor})
    with pytest.raises(CheckpointError, match=f"up_proj.{suffix}' holds torch.") as caught:
        sample_layer(ModelOpt, broken, site, tmp_path)
    assert caught.value.code == "CORE-M160"
