"""The reference form of the method, against the format's definition."""

from __future__ import annotations

import pytest
import torch
from core_plugin_awq.conformance import samples
from core_plugin_awq.scheme import AWQScheme

from core.api import CheckpointError, LayerSite, QuantContext
from core.testing.layers import sample_layer

CONFIG = {"bits": 4, "group_size": 32, "version": "gemm", "modules_to_not_convert": ["left.out"]}
SAMPLES = {one.name: one for one in samples()}


@pytest.mark.covers("QUANT-01", "QUANT-04")
@pytest.mark.parametrize("name", SAMPLES)
def test_linears_compute_what_the_format_means(name, tmp_path):
    sample = SAMPLES[name]
    values = sample.values()
    for site in [one for one in sample.layers if one.kind == "linear"]:
        modules = [f"{site.prefix}.{part}" if part else site.prefix for part, _ in site.parts]
        weight = torch.cat([values[f"{module}.weight"] for module in modules])
        bias = values[f"{site.prefix}.bias"] if site.bias else 0
        x = torch.randn(5, site.in_features)
        expected = x @ weight.T + bias
        largest = expected.abs().max().item()
        layer = sample_layer(AWQScheme, sample, site, tmp_path)
        torch.testing.assert_close(layer(x), expected, rtol=1e-5, atol=1e-5 * largest)


def test_layers_that_the_checkpoint_leaves_plain():
    scheme = AWQScheme(QuantContext(torch.device("cpu"), torch.float32, CONFIG))
    assert type(scheme.for_site(LayerSite("embedding", "embed", 64, (("", 8),)))).__name__.startswith("Plain")
    assert type(scheme.for_site(LayerSite("linear", "left.out", 64, (("", 8),)))).__name__.startswith("Plain")
    assert type(scheme.for_site(LayerSite("linear", "taken", 64, (("", 8),)))).__name__ != "PlainLinear"


@pytest.mark.parametrize(
    ("change", "named"),
    [({"bits": 3}, "3 bits"), ({"version": "marlin"}, "marlin"), ({"group_size": 0}, "groups of 0")],
)
def test_what_is_not_understood_is_refused_by_name(change, named):
    config = CONFIG | change
    with pytest.raises(CheckpointError, match=named) as caught:
        AWQScheme(QuantContext(torch.device("cpu"), torch.float32, config))
    assert caught.value.code == "CORE-M160"
