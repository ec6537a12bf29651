"""What the format reads, against its definition."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from core_plugin_bitsandbytes.config import reasons_against, refine
from core_plugin_bitsandbytes.conformance import EIGHT_BITS, four_bits, samples
from core_plugin_bitsandbytes.scheme import BitsAndBytes
from core_plugin_bitsandbytes.state import TABLES

from core.api import PLAIN, CheckpointError, LayerSite, ProbeResult, QuantContext, QuantRequest
from core_testing.layers import sample_layer
from core_testing.samples import compare_sample, redescribed

SAMPLES = {one.name: one for one in samples()}
LINEAR = LayerSite("linear", "model.layers.0.mlp.gate_proj", 128, (("", 8),))


def made(config):
    return BitsAndBytes(QuantContext(torch.device("cpu"), torch.float32, config))


@pytest.mark.covers("QUANT-01")
@pytest.mark.parametrize("name", ["int8", "nf4", "nf4, nested", "nf4, across rows", "fp4"])
def test_layers_compute_what_the_format_means(name, tmp_path):
    sample = SAMPLES[name]
    compare_sample(BitsAndBytes, replace(sample, layers=sample.layers[:3]), tmp_path)


@pytest.mark.parametrize(
    ("config", "in_features", "key"),
    [
        (EIGHT_BITS, 96, "int8/1xall:float32@as_is"),
        (four_bits("nf4"), 128, "nf4/1x64:float32@as_is"),
        (four_bits("nf4"), 96, "bitsandbytes:nf4@as_is"),
        (four_bits("fp4"), 128, "fp4/1x64:float32@as_is"),
        (four_bits("fp4"), 96, "bitsandbytes:fp4@as_is"),
    ],
)
def test_the_form_is_core_s_where_blocks_do_not_cross_rows(config, in_features, key):
    assert made(config).form(replace(LINEAR, in_features=in_features), "").key == key


def test_what_the_checkpoint_leaves_plain_has_the_plain_form():
    form = made({**EIGHT_BITS, "llm_int8_skip_modules": ["lm_head", "model.layers.1"]})
    assert form.form(LINEAR, "") != PLAIN
    for kind, path in (("linear", "model.layers.1.mlp.up_proj"), ("lm_head", "lm_head"), ("router", "x.gate")):
        assert form.form(LayerSite(kind, path, 128, (("", 8),)), "") == PLAIN, path


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({}, "load_in_8bit None and load_in_4bit None"),
        ({"load_in_8bit": True, "load_in_4bit": True}, "load_in_4bit True"),
        ({"load_in_4bit": True, "bnb_4bit_quant_type": "int4"}, "int4"),
        ({"load_in_8bit": True, "llm_int8_has_fp16_weight": True}, "llm_int8_has_fp16_weight"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(config, named):
    with pytest.raises(CheckpointError, match=named):
        made(config)
    verdict = refine(QuantRequest("bitsandbytes", "cpu", "auto", config), ProbeResult(available=True))
    assert list(verdict.reasons) == reasons_against(config) != []


def test_a_file_that_does_not_say_which_codes_of_four_bits_has_fp4():
    assert made({"load_in_4bit": True}).form(LINEAR, "").codes == "fp4"


def _bytes(text):
    return torch.tensor(list(text.encode()), dtype=torch.uint8)


@pytest.mark.parametrize(
    ("sample", "suffix", "tensor", "named"),
    [
        ("int8", "weight", torch.zeros(48, 128), "up_proj.weight' holds torch.float32, not torch.int8"),
        ("nf4", "weight.quant_state.bitsandbytes__nf4", _bytes("{"), "is no JSON"),
        (
            "nf4",
            "weight.quant_state.bitsandbytes__nf4",
            _bytes('{"quant_type": "fp4"}'),
            "a state of 'fp4', not of nf4",
        ),
        (
            "nf4",
            "weight.quant_state.bitsandbytes__nf4",
            _bytes('{"quant_type": "nf4", "blocksize": 128}'),
            "absmax.* has shape \\(96,\\), not \\(48,\\)",
        ),
        (
            "fp4",
            "weight.quant_state.bitsandbytes__fp4",
            _bytes('{"quant_type": "fp4", "blocksize": 0}'),
            "blocksize 0",
        ),
        ("fp4", "weight.quant_map", TABLES["nf4"], "quant_map' is not the table of fp4"),
    ],
)
def test_tensors_that_contradict_the_settings_are_refused_by_name(sample, suffix, tensor, named, tmp_path):
    site = SAMPLES[sample].layers[2]
    broken = redescribed(SAMPLES[sample], {f"{site.prefix}.{suffix}": tensor})
    with pytest.raises(CheckpointError, match=named) as caught:
        sample_layer(BitsAndBytes, broken, site, tmp_path)
    assert caught.value.code == "CORE-M160"
