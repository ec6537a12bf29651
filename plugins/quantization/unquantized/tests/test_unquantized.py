"""Plain weights: what is declared, and how it is applied."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from core_plugin_unquantized.manifest import NONE
from core_plugin_unquantized.plain import Plain

from core.api import LayerSite, QuantContext

SCHEME = Plain(QuantContext(torch.device("cpu"), torch.float32, {}))
PARTS = (("gate_proj", 3), ("up_proj", 5))


class Params:
    def __init__(self):
        self.declared = {}

    def declare(self, name, shape, dtype, *, rows=()):
        self.declared[name] = (shape, dtype, tuple(rows))


class Stored:
    name, shape, encoding = "x.weight", (2, 2), "plain"

    def dense(self, dtype):
        return torch.ones(2, 2, dtype=torch.bfloat16).to(dtype)


def test_a_linear_layer_declares_its_parts_and_multiplies():
    layer = SCHEME.for_site(LayerSite("linear", "mlp", 4, PARTS, bias=True))
    params = Params()
    layer.declare(params)
    assert params.declared == {
        "weight": ((8, 4), torch.float32, PARTS),
        "bias": ((8,), torch.float32, PARTS),
    }
    x, weight, bias = torch.randn(2, 4), torch.randn(8, 4), torch.randn(8)
    final = layer.finalize({"weight": weight, "bias": bias})
    torch.testing.assert_close(layer.apply(x, final), x @ weight.T + bias)


@pytest.mark.parametrize("kind", ["linear", "lm_head"])
def test_without_a_bias_none_is_declared(kind):
    layer = SCHEME.for_site(LayerSite(kind, "head", 4, [("", 6)]))
    params = Params()
    layer.declare(params)
    assert list(params.declared) == ["weight"]
    x, weight = torch.randn(2, 4), torch.randn(6, 4)
    torch.testing.assert_close(layer.apply(x, {"weight": weight}), x @ weight.T)


def test_an_embedding_looks_rows_up():
    layer = SCHEME.for_site(LayerSite("embedding", "embed", 4, [("", 6)]))
    weight = torch.randn(6, 4)
    assert torch.equal(layer.apply(torch.tensor([5, 0, 5]), {"weight": weight}), weight[[5, 0, 5]])


def test_tensors_are_decoded_to_the_compute_dtype():
    layer = SCHEME.for_site(LayerSite("linear", "x", 2, [("", 2)]))
    assert layer.decode("weight", Stored()).dtype == torch.float32


def test_the_manifest_names_the_scheme_and_loads_no_torch():
    assert (NONE.name, NONE.methods) == ("none", {"none"})
    code = "import sys, core_plugin_unquantized.manifest; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
