"""What the format reads, against its definition."""

from __future__ import annotations

import pytest
import torch
from core_plugin_gptq.conformance import samples
from core_plugin_gptq.scheme import GPTQFormat

from core.api import PLAIN, CheckpointError, LayerSite, QuantContext
from core_testing.layers import PlainTensor, sample_layer
from core_testing.samples import compare_sample, redescribed

CONFIG = {"bits": 4, "group_size": 32, "modules_to_not_convert": ["left.out"]}
SAMPLES = {one.name: one for one in samples()}
LINEAR = LayerSite("linear", "taken", 64, (("", 48),))


def made(**change):
    return GPTQFormat(QuantContext(torch.device("cpu"), torch.float32, CONFIG | change))


@pytest.mark.covers("QUANT-01", "QUANT-04")
@pytest.mark.parametrize("name", SAMPLES)
def test_layers_compute_what_the_format_means(name, tmp_path):
    compare_sample(GPTQFormat, SAMPLES[name], tmp_path)


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({}, "int4/1x32:float32+zeros@as_is"),
        ({"sym": True}, "int4/1x32:float32@as_is"),
        ({"sym": False, "desc_act": True}, "int4/1x32:float32+zeros+ordered@as_is"),
        ({"bits": 3, "sym": True, "desc_act": True, "group_size": -1}, "int3/1xall:float32@as_is"),
    ],
)
def test_settings_are_in_the_form(change, key):
    assert made(**change).form(LINEAR, "").key == key


def test_what_the_checkpoint_leaves_plain_has_the_plain_form():
    head = LayerSite("lm_head", "lm_head", 64, (("", 8),))
    assert made().form(LayerSite("embedding", "embed", 64, (("", 8),)), "") == PLAIN
    assert made().form(LayerSite("linear", "left.out", 64, (("", 8),)), "") == PLAIN
    assert made().form(head, "") == PLAIN != made(lm_head=True).form(head, "")


@pytest.mark.covers("QUANT-01")
def test_layers_may_have_settings_of_their_own():
    form = made(
        dynamic={"-:.*o_proj": {}, r"+:model\.layers\.3\.": {"bits": 8, "group_size": -1}, "lone": {"sym": True}}
    )
    found = {
        prefix: form.form(LayerSite("linear", prefix, 64, (("", 48),)), "").key
        for prefix in ("model.layers.0.o_proj", "model.layers.3.q_proj", "model.layers.30.q_proj", "lone", "a.lone")
    }
    usual = "int4/1x32:float32+zeros@as_is"
    assert list(found.values()) == [
        "plain@as_is", "int8/1xall:float32+zeros@as_is", usual, "int4/1x32:float32@as_is", usual,
    ]  # fmt: skip


@pytest.mark.covers("QUANT-01")
def test_auto_round_says_it_by_name():
    own = {"model.layers.0.q_proj": {"bits": 8}, r"model\.layers\.\d+\.o_proj": {"bits": 16, "data_type": "float"}}
    given = {"quant_method": "auto-round", "packing_format": "auto_round:auto_gptq", "sym": True, "extra_config": own}
    form = made(**given)
    for prefix, key in (
        ("model.layers.0.q_proj", "int8/1x32:float32@as_is"),
        ("model.layers.0.q_proj.x", "int4/1x32:float32@as_is"),
        ("model.layers.7.o_proj", "plain@as_is"),
        ("model.layers.7.q_proj", "int4/1x32:float32@as_is"),
    ):
        assert form.form(LayerSite("linear", prefix, 64, (("", 48),)), "").key == key, prefix


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
@pytest.mark.parametrize("ordered", [False, True])
def test_tensors_say_how_much_they_hold(bits, ordered):
    """Of 64 inputs and 96 outputs in groups of 32."""
    words = {2: 6, 3: 9, 4: 12, 8: 24}[bits]
    stored = {one.suffix: one for one in made(bits=bits, desc_act=ordered).stored(LINEAR, "")}
    assert stored["qweight"].elements(96, 64) == (96, 2 * bits) and stored["qweight"].axes == (1, 0)
    groups = (None, 1) if ordered else (0, 2)
    for name, outputs in (("qzeros", words), ("scales", 96)):
        assert (stored[name].axes[1], stored[name].elements(96, 64)[1] if not ordered else 1) == groups
        assert stored[name].elements(96, 64)[0] == outputs
    assert stored["g_idx"].axes == (None, 0) and stored["g_idx"].optional == (not ordered)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"bits": 5}, "5 bits"),
        ({"checkpoint_format": "marlin"}, "marlin"),
        ({"dynamic": {"+:x": {"bits": 5}}}, "x: weights of 5 bits"),
        ({"dynamic": {"-:(": {}}}, "no regular expression"),
        ({"quant_method": "auto-round", "packing_format": "auto_round:auto_awq"}, "auto_round:auto_awq"),
        ({"quant_method": "auto-round", "data_type": "mx_fp"}, "weights of 'mx_fp', not integers"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(change, named):
    with pytest.raises(CheckpointError, match=named) as caught:
        made(**change)
    assert caught.value.code == "CORE-M160"


@pytest.mark.parametrize(
    ("sample", "change", "said"),
    [
        ("groups of 32", {"sym": True}, "zero points, which differ"),
        ("act-order", {"desc_act": False}, "the groups that g_idx tells"),
        ("groups of 32", {"group_size": -1}, "scales"),
    ],
)
def test_tensors_that_contradict_the_settings_are_refused(sample, change, said, tmp_path):
    given = redescribed(SAMPLES[sample], **change)
    with pytest.raises(CheckpointError, match=said) as caught:
        sample_layer(GPTQFormat, given, given.layers[2], tmp_path)
    assert caught.value.code == "CORE-M160" and "model.layers.0.mlp.up_proj" in caught.value.message


def test_without_a_g_idx_groups_follow_each_other():
    codes = torch.arange(64 * 48).view(64, 48) % 16
    words = sum(codes[i::8] << 4 * i for i in range(8)).to(torch.int32)
    tensors = {
        "qweight": words,
        "qzeros": torch.full((2, 6), 0x77777777, dtype=torch.int32),
        "scales": torch.tensor([[1.0], [2.0]]).repeat(1, 48),
    }
    part = made(sym=True).read(LINEAR, "", {name: PlainTensor(name, value) for name, value in tensors.items()})
    assert part.zeros is None and part.group_of is None and part.codes.dtype == torch.int8
    assert torch.equal(part.codes.t().long(), codes - 8)


@pytest.mark.covers("QUANT-01")
@pytest.mark.parametrize("method", ["auto-round", "intel/auto-round", "inc"])
def test_auto_round_may_quantize_the_head_and_some_blocks(method):
    given = {"quant_method": method, "sym": True, "extra_config": {"lm_head": {"bits": 8}}}
    form = made(**given, block_name_to_quantize=["model.layers"])
    found = [
        form.form(LayerSite(kind, prefix, 64, (("", 48),)), "").shown
        for kind, prefix in (
            ("lm_head", "lm_head"),
            ("linear", "model.layers.1.q_proj"),
            ("linear", "model.vision.0.q_proj"),
        )
    ]
    assert found == ["int8/1x32:float32", "int4/1x32:float32", "plain"]
    plain = made(**given | {"extra_config": {"lm_head": {"bits": 16}}})
    assert plain.form(LayerSite("lm_head", "lm_head", 64, (("", 8),)), "") == PLAIN
