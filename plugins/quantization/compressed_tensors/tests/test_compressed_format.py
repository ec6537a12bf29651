"""What the format reads, against its definition."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from core_plugin_compressed_tensors.conformance import samples
from core_plugin_compressed_tensors.scheme import CompressedFormat

from core.api import PLAIN, CheckpointError, LayerSite, QuantContext
from core.ops.rounding import rounded
from core.testing.layers import PlainTensor, sample_layer
from core.testing.samples import compare_sample, redescribed

INT8 = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel"}
CONFIG = {
    "format": "int-quantized",
    "ignore": ["re:.*out$", "mixed.b"],
    "config_groups": {"g": {"targets": ["Linear"], "weights": INT8}},
}
SAMPLES = {one.name: one for one in samples()}


def made(**change):
    return CompressedFormat(QuantContext(torch.device("cpu"), torch.float32, CONFIG | change))


@pytest.mark.covers("QUANT-01")
@pytest.mark.parametrize("name", SAMPLES)
def test_layers_compute_what_the_format_means(name, tmp_path):
    sample = SAMPLES[name]
    rounds = None if name == "W8A16" else lambda x: rounded(x, "int8:token")
    compare_sample(CompressedFormat, replace(sample, layers=sample.layers[:3]), tmp_path, rounds)


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


def test_what_the_checkpoint_leaves_plain_has_the_plain_form():
    mixed = LayerSite("linear", "mixed", 64, (("a", 8), ("b", 8)))
    assert made().form(LayerSite("embedding", "embed", 64, (("", 8),)), "") == PLAIN
    assert made().form(LayerSite("linear", "left.out", 64, (("", 8),)), "") == PLAIN
    assert [made().form(mixed, part).key for part in "ab"] == ["int8/1xall:float32@as_is", "plain@as_is"]
    assert made().form(LayerSite("lm_head", "lm_head", 64, (("", 8),)), "") != PLAIN  # it is a linear module, too


@pytest.mark.parametrize(("strategy", "axes"), [("channel", (0, None)), ("tensor", (None, None))])
def test_scales_say_what_shares_them(strategy, axes):
    group = {"targets": ["Linear"], "weights": {**INT8, "strategy": strategy}}
    codes, scale = made(config_groups={"g": group}).stored(LayerSite("linear", "x", 64, (("", 8),)), "")
    assert (codes.axes, scale.axes) == ((0, 1), axes)


def test_other_schemes_of_weights_are_refused_by_name():
    for change in ({"num_bits": 4}, {"symmetric": False}, {"strategy": "group"}):
        with pytest.raises(CheckpointError, match=next(iter(change))):
            made(config_groups={"g": {"targets": ["Linear"], "weights": {**INT8, **change}}})


@pytest.mark.parametrize(
    ("change", "named"), [({"format": "float-quantized"}, "float-quantized"), ({"config_groups": {}}, "0 groups")]
)
def test_what_is_not_understood_is_refused_by_name(change, named):
    with pytest.raises(CheckpointError, match=named) as caught:
        made(**change)
    assert caught.value.code == "CORE-M160"


def test_codes_of_another_type_are_refused():
    stored = {"weight": torch.zeros(8, 64), "weight_scale": torch.ones(8, 1)}
    tensors = {name: PlainTensor(name, value) for name, value in stored.items()}
    with pytest.raises(CheckpointError, match=r"'weight' holds torch.float32, not torch.int8") as caught:
        made().read(LayerSite("linear", "x", 64, (("", 8),)), "", tensors)
    assert caught.value.code == "CORE-M160"
