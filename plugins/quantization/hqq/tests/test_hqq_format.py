"""What the format reads, against its definition."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from core_plugin_hqq.config import reasons_against, refine
from core_plugin_hqq.conformance import described, encoded, samples, settings
from core_plugin_hqq.scheme import HQQFormat, unpack
from safetensors.torch import load_file

from core.api import PLAIN, CheckpointError, LayerSite, ProbeResult, QuantContext, QuantRequest
from core.api.ranks import Ranks
from core.layers.roles import Roles
from core_testing.layers import PlainTensor, fill, make_layer, sample_layer
from core_testing.samples import compare_sample, redescribed

SAMPLES = {one.name: one for one in samples()}
LINEAR = LayerSite("linear", "model.layers.0.mlp.gate_proj", 128, (("", 8),))


def made(given, **change):
    return HQQFormat(QuantContext(torch.device("cpu"), torch.float32, described(given) | change))


@pytest.mark.covers("QUANT-01")
@pytest.mark.parametrize("name", SAMPLES)
def test_layers_compute_what_the_format_means(name, tmp_path):
    compare_sample(HQQFormat, replace(SAMPLES[name], layers=SAMPLES[name].layers[:3]), tmp_path)


@pytest.mark.parametrize(
    ("given", "inputs", "key"),
    [
        (settings(), 128, "int4/1x64:float32+zeros@as_is"),
        (settings(3), 128, "int3/1x64:float32+zeros@as_is"),
        (settings(8, None), 128, "int8/1xall:float32+zeros@as_is"),
        (settings(), 96, "hqq:4bit@as_is"),
        (settings(2, axis=0), 128, "hqq:2bit@as_is"),
    ],
)
def test_the_form_is_core_s_where_groups_are_runs_of_inputs(given, inputs, key):
    assert made(given).form(replace(LINEAR, in_features=inputs), "").key == key


@pytest.mark.parametrize(
    ("bits", "packed", "codes"),
    [
        (8, [7], [7]),
        (4, [0x1F], [1, 15]),
        (2, [0b00_01_10_11], [0, 1, 2, 3]),
        (1, [0b10000001], [1, 0, 0, 0, 0, 0, 0, 1]),
        (3, [0o0123456701], [0, 1, 2, 3, 4, 5, 6, 7, 0, 1]),
    ],
)
def test_the_first_code_is_in_the_highest_bits(bits, packed, codes):
    words = torch.tensor([packed], dtype=torch.int32 if bits == 3 else torch.uint8)
    assert unpack(words, bits, len(codes)).flatten().tolist() == codes


def test_layers_may_have_settings_of_their_own_by_tag():
    form = made({"self_attn.q_proj": settings(8), "mlp.gate_proj": settings(2, 32)}, skip_modules=["lm_head"])
    found = {
        name: form.form(replace(LINEAR, prefix=f"model.layers.7.{name}"), "").shown
        for name in ("self_attn.q_proj", "mlp.gate_proj", "mlp.up_proj")
    }
    assert list(found.values()) == ["int8/1x64:float32+zeros", "int2/1x32:float32+zeros", "plain"]


def test_what_the_checkpoint_leaves_plain_has_the_plain_form():
    head = LayerSite("lm_head", "lm_head", 128, (("", 8),))
    form = made(settings(), skip_modules=["lm_head", "mlp.gate_proj"])
    assert form.form(LINEAR, "") == form.form(head, "") == PLAIN != made(settings(), skip_modules=[]).form(head, "")
    for kind, path in (("embedding", "model.embed_tokens"), ("router", "model.layers.0.mlp.gate")):
        assert made(settings(), skip_modules=[]).form(LayerSite(kind, path, 128, (("", 8),)), "") == PLAIN, path


@pytest.mark.parametrize(("bits", "dtype"), [(4, torch.float16), (3, torch.bfloat16), (8, torch.float32)])
def test_codes_may_be_shown_as_floats(bits, dtype):
    given = settings(bits)
    stored, meant = encoded(given, (48, 128), torch.Generator().manual_seed(1))
    stored["W_q"] = stored["W_q"].view(dtype)
    tensors = {name: PlainTensor(name, one) for name, one in stored.items()}
    site = replace(LINEAR, parts=(("", 48),))
    part = made(given).read(site, "", tensors)
    spread = part.zeros.repeat_interleave(64, 1), part.scales.repeat_interleave(64, 1)
    assert torch.equal((part.codes - spread[0]) * spread[1], meant)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({}, "no quant_config"),
        (settings(5), "weights of 5 bits"),
        (settings(size=0), "groups of 0 values"),
        (settings(axis=2), "axis 2"),
        (settings(zero_quant_params={"nbits": 8}), "zero_quant_params"),
        (settings(scale_quant_params={"nbits": 8}), "scale_quant_params"),
        (settings(offload_meta=True), "offload_meta"),
        (settings() | {"weight_quant_params": {"channel_wise": False}}, "channel_wise"),
        ({"mlp.up_proj": settings(7)}, "mlp.up_proj: weights of 7 bits"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(given, named):
    with pytest.raises(CheckpointError, match=named) as caught:
        made(given)
    assert caught.value.code == "CORE-M160"
    verdict = refine(QuantRequest("hqq", "cpu", "auto", described(given)), ProbeResult(available=True))
    assert list(verdict.reasons) == reasons_against(described(given)) != []


@pytest.mark.parametrize(
    ("sample", "suffix", "tensor", "named"),
    [
        ("4 bits", "W_q", torch.zeros(48, 64, dtype=torch.int32), "W_q' holds torch.int32"),
        ("3 bits", "W_q", torch.zeros(10, 32, dtype=torch.int32), r"in \(32,\) columns, not torch.int32 in 64"),
        ("4 bits", "scale", torch.ones(95, 1), "scale' has 95 numbers, not 96"),
        ("2 bits, axis 0", "zero", torch.ones(1, 64), "zero' has 64 numbers, not 96"),
        ("4 bits", "nbits", torch.tensor(2), r"nbits' is \[2\], not \[4\]"),
        ("4 bits", "shape", torch.tensor([128, 48]), r"shape' is \[128, 48\], not \[48, 128\]"),
    ],
)
def test_tensors_that_contradict_the_settings_are_refused_by_name(sample, suffix, tensor, named, tmp_path):
    site = SAMPLES[sample].layers[2]
    broken = redescribed(SAMPLES[sample], {f"{site.prefix}.{suffix}": tensor})
    with pytest.raises(CheckpointError, match=named) as caught:
        sample_layer(HQQFormat, broken, site, tmp_path)
    assert caught.value.code == "CORE-M160" and "up_proj" in caught.value.message


def test_other_groups_than_the_checkpoint_says_are_refused(tmp_path):
    site, sample = SAMPLES["4 bits"].layers[2], redescribed(SAMPLES["4 bits"], quant_config=settings(size=32))
    with pytest.raises(CheckpointError, match=r"up_proj\.W_q") as caught:
        sample_layer(HQQFormat, sample, site, tmp_path)
    assert caught.value.code == "CORE-M122"


def shares(site, size, shard):
    """What each rank has of a layer of one part."""
    make = lambda rank: Roles(Ranks(rank, size)).linear(  # noqa: E731
        site.prefix, site.in_features, site.rows, shard, bias=site.bias
    )
    return [make(rank) for rank in range(size)]


@pytest.mark.covers("QUANT-01")
@pytest.mark.parametrize(("size", "shard"), [(2, "out"), (4, "out"), (2, "in")])
@pytest.mark.parametrize("name", ["4 bits", "3 bits", "4 bits, axis 0", "by inputs", "across outputs"])
def test_each_rank_has_its_slice_of_the_weight(name, size, shard, tmp_path):
    sample = SAMPLES[name]
    site, stored = sample.layers[2], load_file(sample.write(tmp_path) / "model.safetensors")
    whole, form = sample.values()[f"{site.prefix}.weight"], described_form(sample, tmp_path)
    for placed in shares(site, size, shard):
        layer = make_layer(form, placed.site, cuts=placed.cuts)
        fill(layer.group, [PlainTensor(*pair) for pair in stored.items()])
        due = placed.cuts.inputs.take(placed.cuts.outputs[0].take(whole, 0), 1)
        torch.testing.assert_close(layer.params["weight"], due)


def test_a_cut_inside_a_group_is_refused_with_both_numbers(tmp_path):
    sample = SAMPLES["4 bits"]
    stored = [PlainTensor(*pair) for pair in load_file(sample.write(tmp_path) / "model.safetensors").items()]
    placed = shares(sample.layers[2], 4, "in")[1]
    layer = make_layer(described_form(sample, tmp_path), placed.site, cuts=placed.cuts)
    with pytest.raises(
        CheckpointError, match=r"takes 32 to 64 of 128, but .*up_proj.* holds 64 inputs together"
    ) as caught:
        fill(layer.group, stored)
    assert caught.value.code == "CORE-M185"


@pytest.mark.parametrize("split", ["halves", "interleaved"])
def test_parts_of_one_module_are_taken_out_of_it(split):
    given, rng = settings(), torch.Generator().manual_seed(7)
    stored, meant = encoded(given, (96, 128), rng)
    site = LayerSite("linear", "mlp", 128, (("gate", 48), ("up", 48)), fused="gate_up", split=split)
    layer = make_layer(made(given), site)
    fill(layer.group, [PlainTensor(f"mlp.gate_up.{suffix}", one) for suffix, one in stored.items()])
    due = meant if split == "halves" else torch.cat((meant[::2], meant[1::2]))
    torch.testing.assert_close(layer.params["weight"], due)


def described_form(sample, folder):
    config = json.loads((folder / "config.json").read_text())["quantization_config"]
    return HQQFormat(QuantContext(torch.device("cpu"), torch.float32, config))
