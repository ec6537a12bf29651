"""What the format reads, against its definition."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch
from core_plugin_fp8.config import forms_of, reasons_against, refine
from core_plugin_fp8.conformance import AUTO_ROUND, STATIC, samples
from core_plugin_fp8.scheme import FP8
from core_plugin_unquantized.int8 import round_rows
from safetensors.torch import load_file

from core.api import PLAIN, CheckpointError, CheckpointInfo, LayerSite, ProbeResult, QuantContext, QuantRequest
from core.ops.rounding import rounded
from core_testing.conformance import CheckpointSample
from core_testing.layers import sample_layer
from core_testing.samples import compare_sample, redescribed

SAMPLES = {one.name: one for one in samples() if isinstance(one, CheckpointSample)}
BLOCKS = {"quant_method": "fp8", "weight_block_size": [128, 128]}
ROUNDS = {
    "blocks": "float8:128",
    "one scale": "float8:token",
    "outputs": "float8:token",
    "large": "float8:128",
    "AutoRound, weights alone": "as_is",
    "AutoRound, blocks": "as_is",
}
LINEAR = LayerSite("linear", "model.layers.0.mlp.gate_proj", 64, (("", 8),))


def made(config, **options):
    return FP8(QuantContext(torch.device("cpu"), torch.float32, config, options))


@pytest.mark.covers("QUANT-06")
@pytest.mark.parametrize("name", ROUNDS)
def test_layers_compute_what_the_format_means(name, tmp_path):
    sample = SAMPLES[name]
    compare_sample(FP8, replace(sample, layers=sample.layers[:3]), tmp_path, partial(rounded, activations=ROUNDS[name]))


@pytest.mark.covers("QUANT-06")
@pytest.mark.parametrize("name", ["one scale, static", "AutoRound, static"])
def test_fixed_scales_are_those_of_the_checkpoint(name, tmp_path):
    sample, site = SAMPLES[name], SAMPLES[name].layers[2]
    scale, values = torch.tensor(0.03), sample.values()
    given = redescribed(sample, {f"{site.prefix}.input_scale": scale})
    x = torch.randn(5, site.in_features, generator=torch.Generator().manual_seed(1))
    expected = rounded(x, "float8:tensor", scale) @ values[f"{site.prefix}.weight"].T + values[f"{site.prefix}.bias"]
    torch.testing.assert_close(sample_layer(FP8, given, site, tmp_path)(x), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "other"), [("weight_scale_inv", "weight_scale"), ("weight_scale", "weight_scale_inv")]
)
def test_scales_have_either_name(name, other, tmp_path):
    sample = SAMPLES["blocks" if name == "weight_scale_inv" else "one scale"]
    site = sample.layers[2]

    stored = load_file(sample.write(tmp_path) / "model.safetensors")[f"{site.prefix}.{name}"]
    renamed = redescribed(sample, {f"{site.prefix}.{other}": stored}, without=[f"{site.prefix}.{name}"])
    x = torch.randn(3, site.in_features)
    due = sample_layer(FP8, sample, site, tmp_path)(x)
    assert torch.equal(sample_layer(FP8, renamed, site, tmp_path)(x), due)


@pytest.mark.covers("QUANT-06")
@pytest.mark.parametrize(
    ("config", "key"),
    [
        (BLOCKS, "float8_e4m3fn/128x128:float32@float8:128"),
        ({"quant_method": "fp8"}, "float8_e4m3fn/allxall:float32@float8:token"),
        ({"quant_method": "fp8", "activation_scheme": "static"}, "float8_e4m3fn/allxall:float32@float8:tensor"),
        ({"quant_method": "fbgemm_fp8"}, "float8_e4m3fn/1xall:float32@float8:token"),
        ({}, "float8_e4m3fn/1xall:float32@float8:token"),
        (AUTO_ROUND, "float8_e4m3fn/1xall:float32@as_is"),
        ({**AUTO_ROUND, "act_bits": 8}, "float8_e4m3fn/1xall:float32@float8:token"),
        (STATIC, "float8_e4m3fn/1xall:float32@float8:tensor"),
        ({**STATIC, "group_size": 0}, "float8_e4m3fn/allxall:float32@float8:tensor"),
        (
            {**AUTO_ROUND, "group_size": [128, 128], "act_bits": 8, "act_group_size": 128},
            "float8_e4m3fn/128x128:float32@float8:128",
        ),
    ],
)
def test_the_form_is_the_checkpoints(config, key):
    assert made(config).form(LINEAR, "").key == key
    assert made(config, activations=16).form(LINEAR, "").key == key.partition("@")[0] + "@as_is"


def test_what_the_checkpoint_leaves_plain_has_the_plain_form():
    form = made({**BLOCKS, "modules_to_not_convert": ["lm_head", "mlp.gate", "model.layers.3"]})
    for kind, path in (
        ("embedding", "embed"),
        ("lm_head", "lm_head"),
        ("router", "model.layers.0.mlp.router"),
        ("linear", "model.layers.0.mlp.gate"),
        ("linear", "model.layers.3.self_attn.o_proj"),
    ):
        assert form.form(LayerSite(kind, path, 64, (("", 8),)), "") == PLAIN, path
    assert form.form(replace(LINEAR, prefix="model.layers.30.mlp.gate_proj"), "") != PLAIN


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"activation_scheme": "sometimes"}, "sometimes"),
        ({"weight_block_size": [128]}, r"\[128\]"),
        ({"weight_block_size": [128, 128], "activation_scheme": "static"}, "in blocks"),
        ({"fmt": "e5m2"}, "e5m2"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(change, named):
    config = {"quant_method": "fp8", **change}
    with pytest.raises(CheckpointError, match=named):
        made(config)
    verdict = refine(QuantRequest("fp8", "cpu", "auto", config), ProbeResult(available=True))
    assert list(verdict.reasons) == reasons_against(config) != []
    assert refine(QuantRequest("none", "cpu", "auto", {}), ProbeResult(available=True)).ok


def test_auto_round_says_by_name_what_is_plain():
    own = {r".*\.o_proj": {"bits": 16}, "lm_head": {"bits": 8, "group_size": -1}}
    form, head = made({**AUTO_ROUND, "extra_config": own}), LayerSite("lm_head", "lm_head", 64, (("", 8),))
    assert form.form(LINEAR, "") == form.form(head, "") != PLAIN == made(AUTO_ROUND).form(head, "")
    for path in ("model.layers.0.self_attn.o_proj", "model.vision.0.q_proj"):
        assert form.form(replace(LINEAR, prefix=path), "") == PLAIN, path


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"packing_format": "auto_round:llm_compressor"}, "packing_format 'auto_round:llm_compressor'"),
        ({"data_type": "int"}, "auto_round:auto_gptq"),
        ({"data_type": "fp8_e5m2"}, "8 bits of 'fp8_e5m2'"),
        ({"fmt": "e5m2"}, "e5m2"),
        ({"bits": 4}, "weights of 4 bits"),
        ({"group_size": 128}, "group_size 128, not -1, 0 or two sizes"),
        ({"sym": False}, "sym False"),
        ({"rotation_config": {"block_size": 32}}, "rotation_config"),
        ({"act_bits": 8, "act_data_type": "int"}, "activations of 8 bits of 'int'"),
        ({"act_bits": 8, "act_group_size": 0}, "act_group_size 0, not -1"),
        ({"act_bits": 8, "act_dynamic": False, "act_group_size": -1}, "act_group_size -1, not 0"),
        ({"extra_config": {"x": {"group_size": 0}}}, "x: group_size 0, not -1"),
        ({"extra_config": {"(": {"bits": 8}}}, "no regular expression"),
    ],
)
def test_other_float8_of_auto_round_is_refused_by_name(change, named):
    config = {**AUTO_ROUND, **change}
    with pytest.raises(CheckpointError, match=named):
        made(config)
    verdict = refine(QuantRequest("auto-round", "cpu", "auto", config), ProbeResult(available=True))
    assert list(verdict.reasons) == reasons_against(config) != []


@pytest.mark.parametrize(
    ("sample", "without", "tensors", "named"),
    [
        ("one scale", "weight_scale", {}, "no weight_scale or weight_scale_inv"),
        ("one scale, static", "input_scale", {}, "no input_scale or activation_scale"),
        ("one scale", "", {"weight": torch.zeros(48, 192, dtype=torch.float8_e5m2)}, "float8_e5m2"),
    ],
)
def test_weights_that_contradict_the_settings_are_refused_by_name(sample, without, tensors, named, tmp_path):
    site = SAMPLES[sample].layers[2]
    changed = {f"{site.prefix}.{suffix}": one for suffix, one in tensors.items()}
    broken = redescribed(SAMPLES[sample], changed, without=[f"{site.prefix}.{without}"])
    with pytest.raises(CheckpointError, match=named) as caught:
        sample_layer(FP8, broken, site, tmp_path)
    assert caught.value.code == "CORE-M160"


@pytest.mark.covers("QUANT-07")
def test_rounding_is_to_the_nearest_code_and_the_same_again():
    weight = torch.randn(9, 70, generator=torch.Generator().manual_seed(2))
    weight[3] = 0
    codes, scales = round_rows(weight, torch.float8_e4m3fn)
    assert (scales.view(-1) == torch.where(weight.abs().amax(1) > 0, weight.abs().amax(1) / 448, 1)).all()
    assert ((codes.float() * scales - weight).abs() <= weight.abs() / 16 + scales / 1024).all()
    again = round_rows(weight, torch.float8_e4m3fn)
    assert torch.equal(again[0].view(torch.uint8), codes.view(torch.uint8)) and torch.equal(again[1], scales)


def test_reports_count_the_matrices_of_each_form(tmp_path):
    tensors = {
        "a.weight": ((8, 8), "float8_e4m3fn"),
        "b.weight": ((8, 8), "bfloat16"),
        "a.weight_scale": ((), "float32"),
    }
    info = CheckpointInfo(
        path=str(tmp_path), format="safetensors", architecture="x", config={}, quantization="fp8", tensors=tensors
    )
    assert {form.codes: count for form, count in forms_of(info).items()} == {"float8_e4m3fn": 1, "plain": 1}
