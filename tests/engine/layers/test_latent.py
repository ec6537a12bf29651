"""Latent attention of the builder: what it is called with, and how its up-projection reaches the backend."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from core_plugin_unquantized.plain import Plain

from core.api import (
    CheckpointError,
    KVLayout,
    KVSpec,
    LatentSite,
    Part,
    PluginError,
    QuantContext,
    Stored,
    WeightForm,
    WeightRules,
)
from core.api.ranks import Ranks
from core.layers.builder import Builder
from core.worker.loading.fill import WeightFiller
from core.worker.loading.names import NameMap
from core.worker.loading.scales import aliases, scale_groups
from core_testing.layers import PlainTensor, fill

CPU = torch.device("cpu")
SIZES = {"num_heads": 2, "latent_dim": 6, "rope_dim": 4, "key_dim": 3, "value_dim": 5, "scale": 0.5}
UP = torch.randn(2 * (3 + 5), 6)


class Layer:
    """What a backend hands out; remembers what it is given."""

    def __init__(self, site):
        self.site, self.calls, self.ups = site, [], []

    def use_up(self, key, value):
        self.ups.append((key.clone(), value.clone()))

    def write(self, latent, rope_key, kv, plan):
        self.calls.append(("write", latent, rope_key, kv, plan))

    def forward(self, q, q_rope, kv, plan):
        self.calls.append(("forward", q, q_rope, kv, plan))
        return torch.zeros(len(q), self.site.num_heads * self.site.value_dim)


class Backend:
    def latent_layout(self, site):
        return KVLayout((16, site.latent_dim + site.rope_dim), torch.float32)

    def latent(self, site):
        self.made = Layer(site)
        return self.made


class Int8:
    """A format of signed codes with a scale for each output."""

    form_of = WeightForm(codes="int", bits=8, outputs=1)

    def form(self, site, part):
        return self.form_of

    def stored(self, site, part):
        return (Stored("weight"), Stored("weight_scale", (0, None)))

    def read(self, site, part, tensors):
        return Part(self.form_of, tensors["weight"].raw(), tensors["weight_scale"].raw())


def builder(form=None, ranks=None, backend=None):
    form = form or Plain(QuantContext(CPU, torch.float32, {}))
    return Builder(form, backend or Backend(), device=CPU, dtype=torch.float32, ranks=ranks)


def made(build):
    module = build.latent_attention(3, **SIZES, up="layers.3.attn.kv_b_proj")
    module.kv = torch.zeros(2, 16, 10)
    return module


def step(tokens, plan="plan"):
    return SimpleNamespace(token_ids=torch.zeros(tokens, dtype=torch.int64), plans=[plan])


def inputs(tokens, dtype=torch.float32):
    shapes = ((2, 3), (2, 4), (6,), (4,))
    return [torch.randn(tokens, *shape).to(dtype) for shape in shapes]


def test_it_writes_then_attends_with_the_plan_of_its_group():
    build = builder()
    module, given = made(build), inputs(5)
    assert module(*given, step(5)).shape == (5, 10)
    q, q_rope, latent, rope_key = given
    (write, forward) = build._backend.made.calls
    assert write == ("write", latent, rope_key, module.kv, "plan")
    assert forward == ("forward", q, q_rope, module.kv, "plan")
    assert build.attentions == [module]
    assert module.site == LatentSite(layer=3, **SIZES)


def test_its_cache_is_the_backends_and_everything_is_kept():
    build = builder()
    module = made(build)
    assert module.layout(build._backend).bytes_per_block == 16 * (6 + 4) * 4
    assert module.spec(build._backend) == KVSpec()
    assert (module.kv_heads, module.takes_scales) == (1, False)


def scaled(takes, given, rounded=True):
    """Return what a layer that takes scales, or does not, was given of a checkpoint's."""

    class Scaled(Layer):
        def use_scales(self, key, value):
            self.scales = (float(key), float(value))

    class Other(Backend):
        def latent(self, site):
            self.made = (Scaled if takes else Layer)(site)
            return self.made

    build = builder(backend=Other())
    build.latent_attention(3, **SIZES, up="layers.3.attn.kv_b_proj", prefix="layers.3.attn")
    groups = scale_groups(build.scaled, rounded=rounded, by_head=True)
    tensors = [PlainTensor(f"layers.3.attn.{name}", torch.tensor(scale)) for name, scale in given.items()]
    WeightFiller(groups, NameMap(WeightRules(), (), aliases(groups)), CPU).fill(tensors)
    return getattr(build._backend.made, "scales", None)


@pytest.mark.covers("ATTN-08")
@pytest.mark.parametrize(
    ("given", "due"),
    [
        ({"k_scale": 0.5, "v_scale": 9.0}, 0.5),
        ({"kv_scale": 0.25}, 0.25),
        ({"v_scale": 9.0}, 1.0),
        ({"k_scale": -1.0, "v_scale": -1.0}, 1.0),
        ({}, 1.0),
    ],
)
def test_its_scale_is_that_of_keys(given, due):
    assert scaled(True, given) == (due, due)
    assert scaled(True, given, rounded=False) == (1.0, 1.0)


def test_a_layer_that_takes_no_scale_is_told():
    with pytest.raises(CheckpointError, match=r"CORE-M144 .*'layers\.3\.attn\.k_scale'"):
        scaled(False, {"k_scale": 0.5})
    scaled(False, {"k_scale": 1.0, "v_scale": 0.5})  # that of values does not count
    scaled(False, {"k_scale": 0.5}, rounded=False)


@pytest.mark.parametrize("place", range(4))
def test_arguments_of_another_size_are_refused_by_name(place):
    module, given = made(builder()), inputs(5)
    given[place] = given[place][:4]
    name = ("the query", "the rotated query", "the latent", "the rotated key")[place]
    with pytest.raises(PluginError, match=f"CORE-P170 .*called attention layer 3: {name} is "):
        module(*given, step(5))


def test_another_dtype_and_another_result_are_refused():
    build = builder()
    module = made(build)
    with pytest.raises(PluginError, match=r"CORE-P170 .*the query is"):
        module(*inputs(5, torch.bfloat16), step(5))
    module._forward = lambda *_: torch.zeros(5, 11)
    with pytest.raises(PluginError, match=r"CORE-P171 .*its result is \(5, 11\)"):
        module(*inputs(5), step(5))


def test_backends_without_latent_layers_are_refused():
    with pytest.raises(PluginError, match="CORE-P110 the model needs latent attention"):
        made(builder(backend=SimpleNamespace(layer=lambda site: None)))
    backend = Backend()
    backend.latent = lambda site: SimpleNamespace(use_up=lambda key, value: None)
    with pytest.raises(PluginError, match=r"CORE-P160 .*latent\(\) handed out .*it lacks write\("):
        made(builder(backend=backend))


def expected(up, heads):
    split = up.view(heads, 3 + 5, 6)
    return split[:, :3], split[:, 3:].transpose(1, 2)


def assert_given(layer, up, heads=2):
    for found, due in zip(layer.ups[-1], expected(up, heads), strict=True):
        torch.testing.assert_close(found, due)


def test_the_up_projection_is_given_to_the_backend_whenever_it_is_loaded():
    build = builder()
    made(build)
    for number, weight in enumerate((UP, 2 * UP)):
        fill(build.groups[-1], [PlainTensor("layers.3.attn.kv_b_proj.weight", weight)])
        assert len(build._backend.made.ups) == number + 1
        assert_given(build._backend.made, weight)


def test_codes_of_an_up_projection_are_opened():
    build = builder(Int8())
    made(build)
    scales = torch.linspace(0.01, 0.2, len(UP))[:, None]
    codes = (UP / scales).round().clamp(-127, 127).to(torch.int8)
    tensors = [PlainTensor("layers.3.attn.kv_b_proj.weight", codes)]
    fill(build.groups[-1], [*tensors, PlainTensor("layers.3.attn.kv_b_proj.weight_scale", scales)])
    assert_given(build._backend.made, codes.float() * scales)


@pytest.mark.parametrize("rank", range(2))
def test_a_rank_takes_its_heads(rank):
    build = builder(ranks=Ranks(rank, 2))
    made(build)
    whole = torch.randn(4 * 8, 6)
    fill(build.groups[-1], [PlainTensor("layers.3.attn.kv_b_proj.weight", whole)])
    assert_given(build._backend.made, whole[16 * rank :][:16])


def test_an_up_projection_of_another_size_is_refused():
    build = builder()
    made(build)
    with pytest.raises(CheckpointError, match=r"CORE-M122 .*kv_b_proj.weight' has shape \(15, 6\)"):
        fill(build.groups[-1], [PlainTensor("layers.3.attn.kv_b_proj.weight", UP[:15])])


def test_made_up_weights_reach_the_backend():
    build = builder()
    made(build)
    for layer, params in build.groups[-1].invented(CPU):
        layer.bind(params)
    key, value = build._backend.made.ups[-1]
    assert (key.shape, value.shape) == ((2, 3, 6), (2, 6, 5))
