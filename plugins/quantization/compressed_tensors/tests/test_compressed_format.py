"""What the format reads, against its definition."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch
from core_plugin_compressed_tensors.config import reasons_against, refine
from core_plugin_compressed_tensors.conformance import AUTO_ROUND, SCHEMES, auto_round, described, samples
from core_plugin_compressed_tensors.scheme import CompressedFormat

from core.api import PLAIN, CheckpointError, LayerSite, ProbeResult, QuantContext, QuantRequest
from core.ops.rounding import rounded
from core_testing.layers import sample_layer
from core_testing.samples import compare_sample, redescribed

SAMPLES = {one.name: one for one in samples()}
FIXED = {"FP8, static": 0.01, "NVFP4": 1 / 512}
LINEAR = LayerSite("linear", "x", 64, (("", 8),))


def made(config, **options):
    return CompressedFormat(QuantContext(torch.device("cpu"), torch.float32, config, options))


def changed(scheme, **weights):
    config = described(scheme)
    config["config_groups"]["group_0"]["weights"] = {**config["config_groups"]["group_0"]["weights"], **weights}
    return config


@pytest.mark.covers("QUANT-01", "QUANT-05", "QUANT-06", "QUANT-10", "QUANT-11")
@pytest.mark.parametrize("name", SCHEMES)
def test_layers_compute_what_the_format_means(name, tmp_path):
    sample, kind = SAMPLES[name], made(described(name)).form(LINEAR, "").activations
    fixed = torch.tensor(FIXED[name]) if name in FIXED else None
    rounds = None if kind == "as_is" else partial(rounded, activations=kind, input_scale=fixed)
    compare_sample(CompressedFormat, replace(sample, layers=sample.layers[:3]), tmp_path, rounds)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("W8A8", "int8/1xall:float32@int8:token"),
        ("W8A8, one scale", "int8/allxall:float32@int8:token"),
        ("W8A16, groups, zero points", "int8/1x16:float32+zeros@as_is"),
        ("W4A16, ordered", "int4/1x16:float32+ordered@as_is"),
        ("W4A8", "int4/1x32:float32@int8:token"),
        ("W4A8, in bytes", "int4/1x32:float32@int8:token"),
        ("W4A8, channels, in bytes", "int4/1xall:float32@int8:token"),
        ("FP8, static", "float8_e4m3fn/allxall:float32@float8:tensor"),
        ("FP8, blocks", "float8_e4m3fn/16x32:float32@float8:128"),
        ("NVFP4", "e2m1/1x16:e4m3@e2m1:16"),
        ("MXFP4A16", "e2m1/1x32:e8m0@as_is"),
        ("MXFP8", "float8_e4m3fn/1x32:e8m0@float8:32"),
    ],
)
def test_the_form_is_the_schemes(name, key):
    assert made(described(name)).form(LINEAR, "").key == key
    assert made(described(name), activations="as_is").form(LINEAR, "").key == f"{key.partition('@')[0]}@as_is"


@pytest.mark.parametrize("ignored", ["k_proj", "q_proj"])
def test_parts_of_one_layer_may_differ(ignored, tmp_path):
    """One is in codes, with activations rounded; the one that is left out is plain."""
    sample = SAMPLES["W8A8"]
    site = replace(sample.layers[1], parts=(("q_proj", 64), ("k_proj", 32)))
    values = sample.values()
    module = site.module(ignored)
    given = redescribed(
        sample, {f"{module}.weight": values[f"{module}.weight"]}, without=[f"{module}.weight_scale"], ignore=[module]
    )
    layer = sample_layer(CompressedFormat, given, site, tmp_path)
    x = torch.randn(5, 64)
    inputs = {name: x if name == ignored else rounded(x, "int8:token") for name, _ in site.parts}
    expected = torch.cat([inputs[name] @ values[f"{site.module(name)}.weight"].T for name, _ in site.parts], 1)
    torch.testing.assert_close(layer(x), expected, rtol=1e-4, atol=1e-4)


def test_layers_may_have_different_schemes():
    first, second = (described(name)["config_groups"]["group_0"] for name in ("W4A16", "FP8, channels"))
    second = {**second, "targets": ["re:.*down_proj$", "x.y"], "format": "float-quantized"}
    config = {**described("W4A16"), "format": "mixed-precision"}
    config["config_groups"] = {"a": {**first, "format": "pack-quantized"}, "b": second}
    form = made(config)
    assert form.form(LINEAR, "").codes == "int"
    for prefix in ("model.layers.3.mlp.down_proj", "x.y"):
        assert form.form(replace(LINEAR, prefix=prefix), "").codes == "float8_e4m3fn"
    assert form.form(replace(LINEAR, prefix="model.layers.3.mlp.down_proj.x"), "").codes == "int"


def test_layers_that_no_group_names_are_plain():
    config = described("W8A8")
    config["config_groups"]["group_0"]["targets"] = ["re:.*q_proj"]
    assert made(config).form(LINEAR, "") == PLAIN
    assert made(config).form(replace(LINEAR, prefix="a.q_proj"), "") != PLAIN


def test_what_the_checkpoint_leaves_plain_has_the_plain_form():
    form = made({**described("W8A16"), "ignore": ["re:.*out$", "mixed.b"]})
    mixed = LayerSite("linear", "mixed", 64, (("a", 8), ("b", 8)))
    assert form.form(LayerSite("embedding", "embed", 64, (("", 8),)), "") == PLAIN
    assert form.form(LayerSite("router", "gate", 64, (("", 8),)), "") == PLAIN
    assert form.form(LayerSite("linear", "left.out", 64, (("", 8),)), "") == PLAIN
    assert [form.form(mixed, part).key for part in "ab"] == ["int8/1xall:float32@as_is", "plain@as_is"]
    assert form.form(LayerSite("lm_head", "lm_head", 64, (("", 8),)), "") != PLAIN  # it is a linear module, too


@pytest.mark.covers("QUANT-01")
@pytest.mark.parametrize(
    ("config", "named"),
    [
        (changed("W8A8", num_bits=5), "num_bits 5"),
        (changed("W4A16", num_bits=3), "num_bits 3"),
        (changed("W4A16", group_size=0), "group_size 0"),
        (changed("W4A16", actorder="dynamic"), "actorder 'dynamic'"),
        (changed("FP8, channels", symmetric=False), "symmetric False"),
        (changed("FP8, blocks", block_structure=[128]), r"block_structure \[128\]"),
        (changed("NVFP4", group_size=32), "group_size 32"),
        ({**described("W8A8"), "format": "marlin-24"}, "marlin-24"),
        ({**described("W8A8"), "config_groups": {}}, "no groups of layers"),
        ({**described("W8A8"), "sparsity_config": {"format": "sparse-24-bitmask"}}, "sparse weights"),
        ({**described("W8A8"), "transform_config": {"config_groups": {"a": {}}}}, "inputs are transformed"),
        ({**described("W8A8"), "ignore": ["re:("]}, "no regular expression"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(config, named):
    with pytest.raises(CheckpointError, match=named) as caught:
        made(config)
    assert caught.value.code == "CORE-M160"
    verdict = refine(QuantRequest("compressed-tensors", "cpu", "auto", config), ProbeResult(available=True))
    assert list(verdict.reasons) == reasons_against(config) != []


@pytest.mark.parametrize("change", [{"symmetric": False}, {"dynamic": False}, {"num_bits": 4}])
def test_other_activations_are_refused_by_name(change):
    config = described("W8A8")
    group = config["config_groups"]["group_0"]
    config["config_groups"]["group_0"] = {**group, "input_activations": {**group["input_activations"], **change}}
    ((name, value),) = change.items()
    with pytest.raises(CheckpointError, match=f"input_activations .*{name} {value}"):
        made(config)


@pytest.mark.parametrize(
    ("sample", "suffix", "tensor"),
    [
        ("W8A8", "weight", torch.zeros(48, 64)),
        ("W4A16", "weight_packed", torch.zeros(48, 8, dtype=torch.int64)),
        ("FP8, channels", "weight", torch.zeros(48, 64)),
        ("NVFP4", "weight_packed", torch.zeros(48, 32, dtype=torch.int8)),
    ],
)
def test_codes_of_another_type_are_refused(sample, suffix, tensor, tmp_path):
    site = SAMPLES[sample].layers[2]
    broken = redescribed(SAMPLES[sample], {f"{site.prefix}.{suffix}": tensor})
    with pytest.raises(CheckpointError, match=f"up_proj.{suffix}' holds torch.") as caught:
        sample_layer(CompressedFormat, broken, site, tmp_path)
    assert caught.value.code == "CORE-M160"


@pytest.mark.covers("QUANT-05")
@pytest.mark.parametrize(("value", "shown"), [(8, "-8 to 8"), (-9, "-9 to 7"), (100, "-8 to 100")])
def test_bytes_that_hold_more_than_four_bits_are_refused(value, shown, tmp_path):
    sample, site = SAMPLES["W4A8, in bytes"], SAMPLES["W4A8, in bytes"].layers[2]
    wrong = torch.randint(-8, 8, (48, 64), dtype=torch.int8)
    wrong[0, :3] = torch.tensor([-8, 7, value])
    broken = redescribed(sample, {f"{site.prefix}.weight": wrong})
    named = f"up_proj.weight' holds values from {shown}, not -8 to 7 of 4 bits"
    with pytest.raises(CheckpointError, match=named) as caught:
        sample_layer(CompressedFormat, broken, site, tmp_path)
    assert caught.value.code == "CORE-M160"


def test_groups_that_have_no_scales_are_refused(tmp_path):
    sample, site = SAMPLES["W4A16, ordered"], SAMPLES["W4A16, ordered"].layers[2]
    broken = redescribed(sample, {f"{site.prefix}.weight_g_idx": torch.full((64,), 4, dtype=torch.int32)})
    with pytest.raises(CheckpointError, match="weight_g_idx' tells groups beyond the 4 that have scales"):
        sample_layer(CompressedFormat, broken, site, tmp_path)


@pytest.mark.covers("QUANT-01", "QUANT-10", "QUANT-11")
@pytest.mark.parametrize("name", AUTO_ROUND)
def test_auto_round_stores_floats_in_runs_alike(name, tmp_path):
    sample, form = (
        SAMPLES[f"AutoRound, {name}"],
        made(auto_round(name)).form(replace(LINEAR, prefix="model.layers.0"), ""),
    )
    assert form == made(described(name)).form(LINEAR, "")
    fixed = torch.tensor(FIXED[name]) if name in FIXED else None
    rounds = None if form.activations == "as_is" else partial(rounded, activations=form.activations, input_scale=fixed)
    compare_sample(CompressedFormat, replace(sample, layers=sample.layers[:3]), tmp_path, rounds)


def test_auto_round_says_by_name_what_differs():
    own = {"model.layers.0.mlp.up": {"bits": 8}, r".*\.out": {"bits": 16}, "lm_head": {"bits": 4}}
    config = auto_round("MXFP4A16")
    form = made({**config, "extra_config": own})
    found = [
        form.form(LayerSite(kind, path, 64, (("", 8),)), "").shown
        for kind, path in (
            ("linear", "model.layers.0.mlp.up"),
            ("linear", "model.layers.0.mlp.out"),
            ("linear", "model.layers.1.mlp.up"),
            ("linear", "model.vision.0.up"),
            ("lm_head", "lm_head"),
        )
    ]
    fours = "e2m1/1x32:e8m0"
    assert found == ["float8_e4m3fn/1x32:e8m0", "plain", fours, "plain", fours]
    whole = {key: one for key, one in config.items() if key not in ("block_name_to_quantize", "packing_format")}
    assert made(whole).form(replace(LINEAR, prefix="model.vision.0.up"), "").shown == fours
    assert made(whole).form(LayerSite("lm_head", "lm_head", 64, (("", 8),)), "") == PLAIN


@pytest.mark.covers("QUANT-01")
@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"packing_format": "auto_round:auto_gptq"}, "packing_format 'auto_round:auto_gptq'"),
        ({"data_type": "mx_int"}, "4 bits of 'mx_int'"),
        ({"data_type": "mx_fp8e5m2", "bits": 8}, "8 bits of 'mx_fp8e5m2'"),
        ({"data_type": "nv_fp", "bits": 8}, "8 bits of 'nv_fp'"),
        ({"data_type": "nv_fp"}, "group_size 32, not 16"),
        ({"group_size": 16}, "group_size 16, not 32"),
        ({"sym": False}, "sym False"),
        ({"rotation_config": {"block_size": 32}}, "rotation_config"),
        ({"act_bits": 4, "act_data_type": "fp8"}, "type 'fp8'"),
        ({"act_bits": 4, "act_dynamic": False}, "dynamic False"),
        ({"extra_config": {"x": {"bits": 6}}}, "x: weights of 6 bits"),
        ({"extra_config": {"(": {"bits": 8}}}, "no regular expression"),
    ],
)
def test_other_numbers_of_auto_round_are_refused_by_name(change, named):
    config = {**auto_round("MXFP4A16"), **change}
    with pytest.raises(CheckpointError, match=named) as caught:
        made(config)
    assert caught.value.code == "CORE-M160"
    verdict = refine(QuantRequest("auto-round", "cpu", "auto", config), ProbeResult(available=True))
    assert list(verdict.reasons) == reasons_against(config) != []


@pytest.mark.parametrize("value", [0.0, -1.0, torch.inf, torch.nan])
@pytest.mark.parametrize("name", ["weight_global_scale", "input_global_scale"])
def test_scales_that_cannot_be_divided_by_are_refused(name, value, tmp_path):
    sample, site = SAMPLES["NVFP4"], SAMPLES["NVFP4"].layers[2]
    broken = redescribed(sample, {f"{site.prefix}.{name}": torch.tensor([value])})
    with pytest.raises(CheckpointError, match=f"{name}' is .*, which is no scale"):
        sample_layer(CompressedFormat, broken, site, tmp_path)
