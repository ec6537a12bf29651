"""Layer norm, plain activations, and matrices that a checkpoint stores the other way round."""

from __future__ import annotations

import pytest
import torch
from core_plugin_unquantized.plain import Plain
from torch.nn import functional

from core.api import CheckpointError, QuantContext, WeightRules
from core.layers.builder import Builder
from core.worker.loading.fill import WeightFiller
from core.worker.loading.names import NameMap
from core.worker.loading.transpose import Transposed

CPU = torch.device("cpu")


class Stored:
    """A checkpoint tensor."""

    def __init__(self, name, value, encoding="plain"):
        self.name, self.value, self.shape, self.encoding = name, value, tuple(value.shape), encoding

    def dense(self, dtype):
        return self.value.to(dtype)

    def raw(self):
        return self.value


@pytest.fixture
def build():
    return Builder(Plain(QuantContext(CPU, torch.float32, {})), object(), device=CPU, dtype=torch.float32)


def fill(build, tensors, rules=None):
    stream = [Stored(name, value) for name, value in tensors.items()]
    return WeightFiller(build.groups, NameMap(rules or WeightRules(), ()), CPU).fill(stream)


@pytest.mark.parametrize("bias", [True, False])
def test_a_layer_norm_is_filled_and_equals_torch(bias, build):
    norm = build.layer_norm(8, 1e-5, "ln", bias=bias)
    tensors = {"ln.weight": torch.randn(8), "ln.bias": torch.randn(8)}
    if not bias:
        del tensors["ln.bias"]
    assert fill(build, tensors) == 8 * len(tensors)
    x, residual = torch.randn(2, 5, 8)
    expected = functional.layer_norm(x + residual, (8,), tensors["ln.weight"], tensors.get("ln.bias"), 1e-5)
    normed, total = norm.add(x, residual)
    torch.testing.assert_close(normed, expected)
    torch.testing.assert_close(total, x + residual)
    torch.testing.assert_close(norm(x + residual), expected)


@pytest.mark.parametrize(
    ("name", "reference"),
    [
        ("relu", torch.relu),
        ("silu", lambda x: x * torch.sigmoid(x)),
        ("gelu", lambda x: x * 0.5 * (1 + torch.erf(x / 2**0.5))),
        ("gelu_new", lambda x: 0.5 * x * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3)))),
        ("gelu_pytorch_tanh", lambda x: 0.5 * x * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3)))),
    ],
)
def test_activations_are_what_they_are_called(name, reference, build):
    x = torch.linspace(-4, 4, 33)
    torch.testing.assert_close(build.activation(name)(x), reference(x))


def test_an_unknown_activation_lists_the_known(build):
    with pytest.raises(
        CheckpointError, match=r"CORE-M127 activation 'swish'.*gelu_new, gelu_pytorch_tanh, .*relu, .*silu"
    ):
        build.activation("swish")


def test_a_rule_turns_matrices_round_while_they_are_read(build):
    linear = build.linear(3, 2, "old.conv", bias=True)
    plain = build.linear(2, 3, "old.fc")
    conv, bias, fc = torch.randn(3, 2), torch.randn(2), torch.randn(3, 2)
    rules = WeightRules(rename=(("new.", "old."),), transpose=("*.conv.weight",))  # names are those of the checkpoint
    fill(build, {"new.conv.weight": conv, "new.conv.bias": bias, "new.fc.weight": fc}, rules)
    x = torch.randn(4, 3)
    torch.testing.assert_close(linear(x), x @ conv + bias)
    torch.testing.assert_close(plain(x[:, :2]), x[:, :2] @ fc.T)


@pytest.mark.parametrize("tensor", [Stored("w", torch.zeros(4)), Stored("w", torch.zeros(4, 4), "gguf:Q4_1")])
def test_what_cannot_be_turned_round_is_refused_by_name(tensor):
    with pytest.raises(CheckpointError, match=r"CORE-M128 .*'w'"):
        Transposed(tensor)


def test_a_transposed_tensor_says_its_new_shape():
    value = torch.arange(6.0).view(2, 3)
    turned = Transposed(Stored("w", value))
    assert (turned.name, turned.shape, turned.encoding) == ("w", (3, 2), "plain")
    assert torch.equal(turned.dense(torch.float64), value.T.double())
    assert torch.equal(turned.raw(), value.T)
