"""The reference form of the method, against the format's definition."""

from __future__ import annotations

import pytest
import torch
from core_plugin_compressed_tensors.conformance import samples
from core_plugin_compressed_tensors.scheme import CompressedScheme

from core.api import CheckpointError, LayerSite, QuantContext
from core.testing.layers import sample_layer

INT8 = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel"}
CONFIG = {
    "format": "int-quantized",
    "ignore": ["re:.*out$"],
    "config_groups": {"g": {"targets": ["Linear"], "weights": INT8}},
}
SAMPLES = {one.name: one for one in samples()}


def integers(tokens, size):
    """Activations that rounding to int8 leaves as they are, so that products can be compared exactly."""
    x = torch.randint(-127, 128, (tokens, size)).float()
    x[:, 0] = 127.0
    return x / 8


def test_activations_are_rounded_per_token(tmp_path):
    sample = SAMPLES["W8A8"]
    site = next(one for one in sample.layers if one.bias)
    x = torch.randn(3, site.in_features)
    step = x.abs().amax(1, keepdim=True) / 127
    rounded = torch.round(x / step) * step
    values = sample.values()
    expected = rounded @ values[f"{site.prefix}.weight"].T + values[f"{site.prefix}.bias"]
    layer = sample_layer(CompressedScheme, sample, site, tmp_path)
    torch.testing.assert_close(layer(x), expected, rtol=1e-5, atol=1e-5)


def test_other_schemes_of_weights_are_refused_by_name():
    for change in ({"num_bits": 4}, {"symmetric": False}, {"strategy": "group"}):
        weights = {**INT8, **change}
        config = {"format": "int-quantized", "config_groups": {"g": {"targets": ["Linear"], "weights": weights}}}
        with pytest.raises(CheckpointError, match=next(iter(change))):
            CompressedScheme(QuantContext(torch.device("cpu"), torch.float32, config))


@pytest.mark.covers("QUANT-01")
@pytest.mark.parametrize("name", SAMPLES)
def test_linears_compute_what_the_format_means(name, tmp_path):
    sample = SAMPLES[name]
    values = sample.values()
    for site in [one for one in sample.layers if one.kind == "linear"]:
        modules = [f"{site.prefix}.{part}" if part else site.prefix for part, _ in site.parts]
        weight = torch.cat([values[f"{module}.weight"] for module in modules])
        bias = values[f"{site.prefix}.bias"] if site.bias else 0
        x = integers(5, site.in_features)
        expected = x @ weight.T + bias
        largest = expected.abs().max().item()
        layer = sample_layer(CompressedScheme, sample, site, tmp_path)
        torch.testing.assert_close(layer(x), expected, rtol=1e-5, atol=1e-5 * largest)


def test_layers_that_the_checkpoint_leaves_plain():
    scheme = CompressedScheme(QuantContext(torch.device("cpu"), torch.float32, CONFIG))
    assert type(scheme.for_site(LayerSite("embedding", "embed", 64, (("", 8),)))).__name__.startswith("Plain")
    assert type(scheme.for_site(LayerSite("linear", "left.out", 64, (("", 8),)))).__name__.startswith("Plain")
    assert type(scheme.for_site(LayerSite("linear", "taken", 64, (("", 8),)))).__name__ != "PlainLinear"


@pytest.mark.parametrize(
    ("change", "named"), [({"format": "float-quantized"}, "float-quantized"), ({"config_groups": {}}, "0 groups")]
)
def test_what_is_not_understood_is_refused_by_name(change, named):
    config = CONFIG | change
    with pytest.raises(CheckpointError, match=named) as caught:
        CompressedScheme(QuantContext(torch.device("cpu"), torch.float32, config))
    assert caught.value.code == "CORE-M160"
