"""What the format reads, against its definition."""

from __future__ import annotations

import pytest
import torch
from core_plugin_awq.conformance import samples
from core_plugin_awq.scheme import AWQFormat, unpack_fast
from safetensors.torch import load_file

from core.api import PLAIN, CheckpointError, LayerSite, QuantContext, WeightForm
from core_testing.layers import sample_layer
from core_testing.samples import compare_sample, redescribed

CONFIG = {"bits": 4, "group_size": 32, "version": "gemm", "modules_to_not_convert": ["left.out"]}
ROUND = {"quant_method": "auto-round", "packing_format": "auto_round:auto_awq"}
SAMPLES = {one.name: one for one in samples()}


def made(**change):
    return AWQFormat(QuantContext(torch.device("cpu"), torch.float32, CONFIG | change))


@pytest.mark.covers("QUANT-01", "QUANT-04")
@pytest.mark.parametrize("name", SAMPLES)
def test_layers_compute_what_the_format_means(name, tmp_path):
    compare_sample(AWQFormat, SAMPLES[name], tmp_path)


def test_what_the_checkpoint_leaves_plain_has_the_plain_form():
    form = made()
    assert form.form(LayerSite("embedding", "embed", 64, (("", 8),)), "") == PLAIN
    assert form.form(LayerSite("linear", "left.out", 64, (("", 8),)), "") == PLAIN
    assert form.form(LayerSite("linear", "taken", 64, (("a", 8),)), "a").key == "int4/1x32:float32+zeros@as_is"
    whole = made(group_size=-1).form(LayerSite("linear", "taken", 64, (("", 8),)), "")
    assert whole == WeightForm(codes="int", bits=4, zeros=True)


@pytest.mark.parametrize(
    ("size", "elements"),
    [
        (32, {"qweight": (6, 64), "qzeros": (6, 2), "scales": (48, 2)}),
        (-1, {"qweight": (6, 64), "qzeros": (6, None), "scales": (48, None)}),
    ],
)
def test_tensors_say_how_much_they_hold(size, elements):
    site = LayerSite("linear", "x", 64, (("", 48),))
    for one in made(group_size=size).stored(site, ""):
        found = tuple(n if axis is not None else None for n, axis in zip(one.elements(48, 64), one.axes, strict=True))
        assert elements[one.suffix] == found


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"bits": 3}, "3 bits"),
        ({"version": "marlin"}, "marlin"),
        ({"version": "llm-awq"}, "llm-awq"),
        ({"version": "gemv_fast", "group_size": 16}, "groups of 16 inputs in the layout 'gemv_fast'"),
        ({"version": "gemv", "group_size": -1}, "groups of -1 inputs in the layout 'gemv'"),
        ({"group_size": 0}, "groups of 0"),
        (ROUND | {"packing_format": "auto_round:auto_gptq"}, "auto_round:auto_gptq"),
        (ROUND | {"packing_format": None}, "auto_round:auto_gptq"),
        (ROUND | {"extra_config": {"x": {"bits": 8}}}, "x: weights of 8 bits"),
        (ROUND | {"data_type": "nv_fp"}, "weights of 'nv_fp', not integers"),
        (ROUND | {"extra_config": {"(": {}}}, "no regular expression"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(change, named):
    with pytest.raises(CheckpointError, match=named) as caught:
        made(**change)
    assert caught.value.code == "CORE-M160"


@pytest.mark.parametrize(
    ("group_size", "code"), [(-1, "CORE-M160"), (16, "CORE-M122")], ids=["one group", "smaller groups"]
)
def test_other_groups_than_the_checkpoint_says_are_refused(group_size, code, tmp_path):
    sample = redescribed(SAMPLES["groups of 32"], group_size=group_size)
    with pytest.raises(CheckpointError) as caught:
        sample_layer(AWQFormat, sample, sample.layers[2], tmp_path)
    assert caught.value.code == code and "model.layers.0.mlp.up_proj" in caught.value.message


@pytest.mark.covers("QUANT-01")
def test_auto_round_says_what_differs_by_name():
    own = {"model.layers.0.q_proj": {"group_size": 64}, r".*\.o_proj": {"bits": 16}, "lm_head": {"bits": 4}}
    form = made(**ROUND, extra_config=own, block_name_to_quantize="model.layers,model.other")
    found = [
        form.form(LayerSite(kind, prefix, 64, (("", 48),)), "").shown
        for kind, prefix in (
            ("linear", "model.layers.0.q_proj"),
            ("linear", "model.layers.0.o_proj"),
            ("linear", "model.layers.1.q_proj"),
            ("linear", "model.vision.0.q_proj"),
            ("lm_head", "lm_head"),
        )
    ]
    usual = "int4/1x32:float32+zeros"
    assert found == ["int4/1x64:float32+zeros", "plain", usual, "plain", usual]
    assert made(**ROUND).form(LayerSite("lm_head", "lm_head", 64, (("", 48),)), "") == PLAIN


@pytest.mark.parametrize(("size", "words"), [(32, 4), (64, 2), (128, 1)])
def test_groups_of_gemv_are_filled_up(size, words):
    """Of 256 inputs, as AutoAWQ's `calculate_zeros_width` counts them."""
    site = LayerSite("linear", "x", 256, (("", 48),))
    stored = {one.suffix: one.elements(48, 256) for one in made(version="GEMV", group_size=size).stored(site, "")}
    assert stored == {"qweight": (48, 32), "qzeros": (48, words), "scales": (48, 8 * words)}


def test_codes_of_gemv_fast_lie_as_autoawq_packs_them():
    """Four outputs and 64 inputs by AutoAWQ's steps: pairs of every run of 8 together, firsts before seconds, rows."""
    codes = torch.randint(0, 16, (8, 128), generator=torch.Generator().manual_seed(1))
    pairs = codes.view(8, 4, 4, 4, 2).transpose(2, 3)  # of 32 inputs: pair, run, first or second
    eights = pairs.transpose(3, 4).reshape(2, 4, 2, 64)
    blocks = eights.transpose(1, 2).reshape(2, 2, 64, 4)
    words = (blocks << torch.tensor([0, 4, 8, 12])).sum(-1).reshape(2, 128).to(torch.int16)
    assert torch.equal(unpack_fast(words), codes.to(torch.uint8))


@pytest.mark.parametrize(
    ("suffix", "change", "named"),
    [
        ("qweight", lambda one: one.int(), r"up_proj\.qweight' holds torch\.int32"),
        ("scales", torch.zeros_like, r"up_proj\.scales' has scales of 0"),
    ],
)
def test_tensors_of_gemv_fast_that_contradict_each_other_are_refused(suffix, change, named, tmp_path):
    sample = SAMPLES["gemv_fast"]
    name = f"{sample.layers[2].prefix}.{suffix}"
    stored = load_file(sample.write(tmp_path) / "model.safetensors")[name]
    broken = redescribed(sample, {name: change(stored)})
    with pytest.raises(CheckpointError, match=named) as caught:
        sample_layer(AWQFormat, broken, sample.layers[2], tmp_path)
    assert caught.value.code == "CORE-M160"


def test_a_group_without_values_has_its_numbers_all_the_same(tmp_path):
    sample, changed = SAMPLES["gemv_fast"], {}
    site, stored = sample.layers[2], load_file(sample.write(tmp_path) / "model.safetensors")
    for suffix in ("scales", "scaled_zeros"):
        changed[f"{site.prefix}.{suffix}"] = stored[f"{site.prefix}.{suffix}"].index_fill(0, torch.tensor([1]), 0)
    weight = sample_layer(AWQFormat, redescribed(sample, changed), site, tmp_path).params["weight"]
    torch.testing.assert_close(weight[:, :32], sample.values()[f"{site.prefix}.weight"][:, :32])
    assert not weight[:, 32:].any()
