"""The builder: what it hands out and what it records."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from core_plugin_unquantized.plain import Plain

from core.api import CheckpointError, LayerSite, PluginError, QuantContext, RopeConfig, WeightRules
from core.layers.builder import Builder
from core.layers.params import targets_of
from core.worker.loading.fill import WeightFiller
from core.worker.loading.names import NameMap
from core_testing.conformance.tools.tensors import PlainTensor
from core_testing.layers import fill

CPU = torch.device("cpu")


class Recorder:
    """A backend whose layers say what they are called with."""

    def __init__(self):
        self.calls = []

    def layer(self, site):
        recorder = self

        class Layer:
            def write_kv(self, k, v, kv, plan):
                recorder.calls.append(("write", k, v, kv, plan))

            def forward(self, q, kv, plan):
                recorder.calls.append(("forward", q, kv, plan))
                return q.flatten(1)

        return Layer()


@pytest.fixture
def build():
    return Builder(Plain(QuantContext(CPU, torch.float32, {})), Recorder(), device=CPU, dtype=torch.float32)


def test_the_sinks_of_a_layer_are_a_parameter_of_it(build):
    seen = []
    plain = build._backend.layer

    def layer(site):
        made = plain(site)
        made.use_sinks = lambda sinks: seen.append(sinks.tolist())
        return made

    build._backend.layer = layer
    module = build.attention(0, num_heads=2, num_kv_heads=1, head_dim=4, scale=1.0, sinks="model.layers.0.attn.sinks")
    assert module.site.sinks
    fill(build.groups[-1], [PlainTensor("model.layers.0.attn.sinks", torch.tensor([0.5, -1.0], dtype=torch.bfloat16))])
    assert seen == [[0.5, -1.0]]


def test_a_backend_without_sinks_is_refused_for_layers_that_have_some(build):
    with pytest.raises(PluginError, match=r"CORE-P230.*layer 4 has sinks"):
        build.attention(4, num_heads=2, num_kv_heads=1, head_dim=4, scale=1.0, sinks="sinks")


def test_a_chunk_reaches_the_backend_and_values_may_be_smaller_than_keys(build):
    module = build.attention(0, num_heads=2, num_kv_heads=1, head_dim=4, scale=1.0, chunk=8, value_dim=3)
    assert (module.site.chunk, module.site.value_dim) == (8, 3)
    out = torch.zeros(5, 6)
    module._forward, module._write = lambda *_: out, lambda *_: None
    module.kv = torch.zeros(1)
    step = SimpleNamespace(token_ids=torch.zeros(5, dtype=torch.int64), plans=[None])
    assert module(torch.zeros(5, 2, 4), torch.zeros(5, 1, 4), torch.zeros(5, 1, 3), step) is out
    with pytest.raises(PluginError, match="CORE-P170"):
        module(torch.zeros(5, 2, 4), torch.zeros(5, 1, 4), torch.zeros(5, 1, 4), step)


@pytest.mark.covers("QUANT-08")
def test_scales_of_caches_belong_to_the_modules_that_layers_name(build):
    sizes = {"num_heads": 2, "num_kv_heads": 1, "head_dim": 4, "scale": 1.0}
    first, again, other = (build.attention(layer, **sizes, prefix=f"layers.{layer % 2}.attn") for layer in (0, 2, 1))
    assert build.attention(1, **sizes, prefix="layers.3.attn", shared=True) is other
    plain = build.attention(5, **sizes)
    assert build.scaled == {"layers.0.attn": [first, again], "layers.1.attn": [other], "layers.3.attn": []}
    assert build.attentions == [first, again, other, plain]


def test_attention_writes_before_it_attends_with_the_plan_of_the_step(build):
    module = build.attention(3, num_heads=2, num_kv_heads=1, head_dim=4, scale=0.5, window=7, softcap=30.0)
    assert build.attentions == [module]
    site = module.site
    assert (site.layer, site.num_heads, site.num_kv_heads, site.head_dim) == (3, 2, 1, 4)
    assert (site.scale, site.window, site.softcap) == (0.5, 7, 30.0)

    class Step:
        token_ids = torch.zeros(5, dtype=torch.int64)
        plans = (object(),)

    module.kv = torch.zeros(1)
    q, k, v = torch.ones(5, 2, 4), torch.ones(5, 1, 4), torch.ones(5, 1, 4)
    assert module(q, k, v, Step).shape == (5, 8)
    calls = build._backend.calls
    assert [call[0] for call in calls] == ["write", "forward"]
    assert all(call[-1] is Step.plans[0] and call[-2] is module.kv for call in calls)


def test_names_of_merged_and_plain_layers(build):
    build.merged_linear(4, {"q_proj": 6, "k_proj": 2}, "attn", bias=True)
    build.linear(4, 3, "attn.o_proj")
    build.rms_norm(4, 1e-6, "norm")
    targets = targets_of(build.groups)
    assert {name: target.key for name, target in targets.items()} == {
        "attn.q_proj.weight": (0, "weight"),
        "attn.k_proj.weight": (1, "weight"),
        "attn.q_proj.bias": (0, "bias"),
        "attn.k_proj.bias": (1, "bias"),
        "attn.o_proj.weight": (0, "weight"),
        "norm.weight": "weight",
    }


def test_a_fused_module_has_one_tensor_for_all_parts(build):
    build.merged_linear(4, {"q": 6, "k": 2}, "attn", bias=True, fused="qkv_proj")
    (group,) = build.groups
    assert group.site.module("k") == "attn.qkv_proj" and group.site.parts == [("q", 6), ("k", 2)]
    assert list(targets_of(build.groups)) == ["attn.qkv_proj.weight", "attn.qkv_proj.bias"]


@pytest.mark.parametrize("parts", [{"q": 6, "k": 4}, {"q": 7, "k": 2}])
def test_parts_that_cannot_take_turns_are_refused(build, parts):
    with pytest.raises(ValueError, match=r"'attn' have \[.*\] outputs, which cannot come in"):
        build.merged_linear(4, parts, "attn", fused="qkv", split="interleaved")


def test_two_layers_with_one_name_are_refused(build):
    build.linear(4, 3, "same")
    build.linear(4, 3, "same")
    with pytest.raises(CheckpointError, match=r"CORE-M123 .*same\.weight"):
        targets_of(build.groups)


def test_equal_rotary_configurations_share_one_table(build):
    config = RopeConfig(head_dim=8, rotary_dim=8, max_positions=16)
    first = build.rope(config)
    assert build.rope(RopeConfig(head_dim=8, rotary_dim=8, max_positions=16)) is first
    assert build.rope(RopeConfig(head_dim=8, rotary_dim=8, max_positions=16, theta=5.0)) is not first


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_offset_is_added_to_a_norm_once_when_it_is_loaded(dtype):
    build = Builder(Plain(QuantContext(CPU, dtype, {})), Recorder(), device=CPU, dtype=dtype)
    norm, plain = (build.rms_norm(64, 1e-6, name, offset=offset) for name, offset in (("a", 1.0), ("b", 0.0)))
    weight = torch.randn(64, generator=torch.Generator().manual_seed(0)) / 64
    filler = WeightFiller(build.groups, NameMap(WeightRules(), ()), CPU)
    for _ in range(2):  # weights that are replaced have no more offset than the first
        filler.fill([PlainTensor("a.weight", weight), PlainTensor("b.weight", weight)])
        assert torch.equal(norm.params["weight"], (1 + weight).to(dtype))
        assert torch.equal(plain.params["weight"], weight.to(dtype))


@pytest.mark.parametrize(("dtype", "factor"), [(torch.float32, 640**0.5), (torch.bfloat16, 25.25)])
def test_an_embedding_is_scaled_in_the_compute_dtype_and_its_tied_head_is_not(dtype, factor):
    build = Builder(Plain(QuantContext(CPU, dtype, {})), Recorder(), device=CPU, dtype=dtype)
    embedding = build.embedding(10, 640, "embed", scale=640**0.5)
    head = build.lm_head(10, 640, "head", tied_to=embedding)
    weight = torch.randn(10, 640, generator=torch.Generator().manual_seed(0)).to(dtype)
    WeightFiller(build.groups, NameMap(WeightRules(), build.left_out), CPU).fill([PlainTensor("embed.weight", weight)])
    assert torch.equal(embedding(torch.tensor([3, 7])), weight[[3, 7]] * torch.tensor(factor, dtype=dtype))
    hidden = torch.ones(1, 640, dtype=dtype)
    torch.testing.assert_close(head(hidden), hidden @ weight.T)


def test_unknown_activation_is_refused_with_the_known_ones(build):
    with pytest.raises(CheckpointError, match=r"CORE-M127 .*'relu9'.*silu"):
        build.gated_activation("relu9")


def test_a_head_cannot_be_tied_to_a_strange_embedding(build):
    with pytest.raises(TypeError, match="lm_head"):
        build.lm_head(8, 4, "lm_head", tied_to=lambda ids: ids)


def test_a_head_with_a_bias_cannot_be_tied(build):
    embedding = build.embedding(8, 4, "embed")
    with pytest.raises(ValueError, match="lm_head head has a bias"):
        build.lm_head(8, 4, "head", tied_to=embedding, bias=True)
    with pytest.raises(ValueError, match="other rows"):
        build.lm_head(6, 4, "head", tied_to=embedding)


def test_a_head_may_have_a_bias(build):
    head = build.lm_head(3, 2, "head", bias=True)
    weight, bias = torch.randn(3, 2), torch.randn(3)
    tensors = [PlainTensor("head.weight", weight), PlainTensor("head.bias", bias)]
    WeightFiller(build.groups, NameMap(WeightRules(), ()), CPU).fill(tensors)
    x = torch.randn(4, 2)
    torch.testing.assert_close(head(x), x @ weight.T + bias)


def test_a_tied_head_is_one_product_that_looks_up_and_multiplies():
    """The embedding's site, its format and its parameters are those of the head too."""
    seen, wrapped = [], []

    class Seen(Plain):
        def form(self, site, part):
            seen.append(site)
            return super().form(site, part)

    def wrap(site, layer):
        wrapped.append(site.kind)
        return layer

    build = Builder(Seen(QuantContext(CPU, torch.float32, {})), Recorder(), device=CPU, dtype=torch.float32, wrap=wrap)
    embedding = build.embedding(6, 4, "embed")
    head = build.lm_head(6, 4, "lm_head", tied_to=embedding)
    assert build.left_out == {"lm_head.weight"}
    assert head.site == LayerSite("lm_head", "embed", 4, [("", 6)])
    assert seen == [LayerSite("embedding", "embed", 4, [("", 6)])] and wrapped == ["embedding"]
    stored = torch.arange(24.0).view(6, 4)
    WeightFiller(build.groups, NameMap(WeightRules(), ()), CPU).fill([PlainTensor("embed.weight", stored)])
    assert head.params["weight"] is embedding.params["weight"]
    assert torch.equal(embedding(torch.tensor([1, 5])), stored[[1, 5]])
    assert torch.equal(head(torch.ones(1, 4)), stored.sum(1)[None])
