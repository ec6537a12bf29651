"""Pickers of the builder, and latent attention to what they pick: what is called with what, and what is refused."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from core_plugin_unquantized.plain import Plain

from core.api import KVLayout, KVSpec, PickSite, PluginError, QuantContext
from core.layers.builder import Builder
from core.worker.loading.scales import scale_groups

CPU = torch.device("cpu")
LATENT = {"num_heads": 2, "latent_dim": 6, "rope_dim": 4, "key_dim": 3, "value_dim": 5, "scale": 0.5}
PICKER = {"num_heads": 3, "key_dim": 7, "scale": 0.25, "picks": 4}


class Layer:
    """What a backend hands out; remembers what it is given."""

    def __init__(self, site):
        self.site, self.calls = site, []

    def use_up(self, key, value):
        pass

    def write(self, *given):
        self.calls.append(("write", *given))

    def forward(self, q, *given):
        self.calls.append(("forward", q, *given))
        return torch.zeros(len(q), 10)

    def forward_picked(self, q, *given):
        self.calls.append(("forward_picked", q, *given))
        return torch.zeros(len(q), 10)


class Picker(Layer):
    found = torch.zeros(5, 4, dtype=torch.int32)

    def forward(self, *given):
        self.calls.append(("forward", *given))
        return self.found


class Backend:
    def latent_layout(self, site):
        return KVLayout((16, site.latent_dim + site.rope_dim), torch.float32)

    def latent(self, site):
        self.layer = Layer(site)
        return self.layer

    def picker_layout(self, site):
        return KVLayout((16, site.key_dim), torch.float32)

    def picker(self, site):
        self.made = Picker(site)
        return self.made


def builder(backend=None):
    form = Plain(QuantContext(CPU, torch.float32, {}))
    return Builder(form, backend or Backend(), device=CPU, dtype=torch.float32)


def made(build):
    module = build.picker(6, **PICKER)
    module.kv = torch.zeros(2, 16, 7)
    return module


def layer(build, picks=4):
    module = build.latent_attention(3, **LATENT, up="layers.3.attn.kv_b_proj", picks=picks)
    module.kv = torch.zeros(2, 16, 10)
    return module


def step(tokens, plan="plan"):
    return SimpleNamespace(token_ids=torch.zeros(tokens, dtype=torch.int64), plans=[plan])


def inputs(tokens):
    return [torch.randn(tokens, *shape) for shape in ((3, 7), (7,), (3,))]


def latents(tokens):
    return [torch.randn(tokens, *shape) for shape in ((2, 3), (2, 4), (6,), (4,))]


def test_it_writes_then_picks_with_the_plan_of_its_group():
    build = builder()
    module, (q, key, weights) = made(build), inputs(5)
    assert module(q, key, weights, step(5)) is Picker.found
    assert build._backend.made.calls == [("write", key, module.kv, "plan"), ("forward", q, weights, module.kv, "plan")]
    assert build.attentions == [module]
    assert module.site == PickSite(layer=6, **PICKER)


def test_its_cache_is_the_backends_of_a_size_of_its_own():
    build = builder()
    module = made(build)
    assert module.layout(build._backend).bytes_per_block == 16 * 7 * 4
    assert module.spec(build._backend) == KVSpec()


@pytest.mark.parametrize("place", range(3))
def test_arguments_of_another_size_or_dtype_are_refused_by_name(place):
    module, given = made(builder()), inputs(5)
    name = ("the index query", "the index key", "the weights of the index heads")[place]
    for wrong in (given[place][:4], given[place].bfloat16()):
        with pytest.raises(PluginError, match=f"CORE-P170 .*called attention layer 6: {name} is "):
            module(*given[:place], wrong, *given[place + 1 :], step(5))


@pytest.mark.parametrize("found", [torch.zeros(5, 3, dtype=torch.int32), torch.zeros(5, 4, dtype=torch.int64)])
def test_another_result_is_refused(found, monkeypatch):
    monkeypatch.setattr(Picker, "found", found)
    with pytest.raises(PluginError, match=r"CORE-P171 .*its result is \(5, "):
        made(builder())(*inputs(5), step(5))


def test_none_may_be_returned(monkeypatch):
    monkeypatch.setattr(Picker, "found", None)
    assert made(builder())(*inputs(5), step(5)) is None


def test_a_latent_layer_attends_to_what_is_picked_or_to_all():
    build = builder()
    module, given, picked = layer(build), latents(5), torch.zeros(5, 4, dtype=torch.int32)
    q, q_rope, latent, rope_key = given
    for positions, call in ((picked, ("forward_picked", q, q_rope, module.kv, "plan", picked)), (None, None)):
        module(*given, step(5), positions)
        write, attend = build._backend.layer.calls
        assert write == ("write", latent, rope_key, module.kv, "plan")
        assert attend == (call or ("forward", q, q_rope, module.kv, "plan"))
        build._backend.layer.calls.clear()
    assert module.site.picks == build._backend.layer.site.picks == 4


@pytest.mark.parametrize(
    ("picks", "picked"),
    [
        (4, torch.zeros(5, 3, dtype=torch.int32)),
        (4, torch.zeros(4, 4, dtype=torch.int32)),
        (4, torch.zeros(5, 4, dtype=torch.int64)),
        (None, torch.zeros(5, 4, dtype=torch.int32)),
    ],
)
def test_other_picks_are_refused(picks, picked):
    with pytest.raises(PluginError, match=r"CORE-P170 .*called attention layer 3: what is picked is "):
        layer(builder(), picks)(*latents(5), step(5), picked)


def test_backends_without_pickers_are_refused():
    backend = Backend()
    backend.picker = None
    with pytest.raises(PluginError, match="CORE-P110 the model needs attention to picked positions"):
        made(builder(backend))
    backend = Backend()
    backend.picker = lambda site: SimpleNamespace(write=lambda key, kv, plan: None)
    with pytest.raises(PluginError, match=r"CORE-P160 .*picker\(\) handed out .*it lacks forward\("):
        made(builder(backend))


def test_layers_that_take_no_picks_are_refused():
    class Whole:
        use_up, write, forward = Layer.use_up, lambda self, a, b, c, d: None, lambda self, a, b, c, d: None

    backend = Backend()
    backend.latent = lambda site: Whole()
    layer(builder(backend), picks=None)
    with pytest.raises(PluginError, match="CORE-P110 the model needs attention to picked positions"):
        layer(builder(backend))


def test_a_hook_sees_pickers_too():
    seen = []

    def wrap(site, one):
        seen.append(site)
        return one

    form = Plain(QuantContext(CPU, torch.float32, {}))
    made(Builder(form, Backend(), device=CPU, dtype=torch.float32, wrap=wrap))
    assert seen == [PickSite(layer=6, **PICKER)]


def test_checkpoints_have_scales_of_attention_alone():
    build = builder()
    module = build.latent_attention(3, **LATENT, up="layers.3.attn.kv_b_proj", prefix="model.layers.3.self_attn")
    made(build)
    groups = scale_groups(build.scaled, rounded=True, by_head=False)
    assert [one.prefix for one in groups] == ["model.layers.3.self_attn"]
    assert build.scaled == {"model.layers.3.self_attn": [module]}
