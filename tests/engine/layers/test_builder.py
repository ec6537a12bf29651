"""The builder: what it hands out and what it records."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from core_plugin_unquantized.scheme import Plain

from core.api import CheckpointError, LayerSite, PluginError, QuantContext, RopeConfig
from core.layers.builder import Builder
from core.layers.params import ParamGroup, targets_of
from core.testing.conformance.tools.tensors import PlainTensor
from core.testing.layers import fill

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
    places = {name: (target.param, target.start, target.rows) for name, target in targets.items()}
    assert places == {
        "attn.q_proj.weight": ("weight", 0, 6),
        "attn.k_proj.weight": ("weight", 6, 2),
        "attn.q_proj.bias": ("bias", 0, 6),
        "attn.k_proj.bias": ("bias", 6, 2),
        "attn.o_proj.weight": ("weight", 0, 3),
        "norm.weight": ("weight", 0, None),
    }


def test_two_layers_with_one_name_are_refused(build):
    build.linear(4, 3, "same")
    build.linear(4, 3, "same")
    with pytest.raises(CheckpointError, match=r"CORE-M123 .*same\.weight"):
        targets_of(build.groups)


def test_parts_that_do_not_make_the_parameter_are_refused():
    group = ParamGroup("layer", lambda param, tensor: tensor.raw())
    with pytest.raises(ValueError, match=r"layer\.weight"):
        group.declare("weight", (4, 2), torch.float32, rows=[("a", 3)])


def test_equal_rotary_configurations_share_one_table(build):
    config = RopeConfig(head_dim=8, rotary_dim=8, max_positions=16)
    first = build.rope(config)
    assert build.rope(RopeConfig(head_dim=8, rotary_dim=8, max_positions=16)) is first
    assert build.rope(RopeConfig(head_dim=8, rotary_dim=8, max_positions=16, theta=5.0)) is not first


def test_unknown_activation_is_refused_with_the_known_ones(build):
    with pytest.raises(CheckpointError, match=r"CORE-M127 .*'relu9'.*silu"):
        build.gated_activation("relu9")


def test_a_head_cannot_be_tied_to_a_strange_embedding(build):
    with pytest.raises(TypeError, match="lm_head"):
        build.lm_head(8, 4, "lm_head", tied_to=lambda ids: ids)


def test_what_a_method_sees_of_a_tied_head():
    """As docs/plugins/kinds/quantization.md says: two sites with one prefix, and the embedding's parameters alone."""
    seen, wrapped = [], []

    class Layer:
        def __init__(self, site):
            self.site, self.size = site, 10 if site.kind == "embedding" else 30

        def declare(self, params):
            seen.append(("declare", self.site.kind))
            params.declare("weight", (6, 4), torch.float32)

        def decode(self, param, tensor):
            seen.append(("decode", self.site.kind))
            return tensor.dense(torch.float32)

        def final_bytes(self):
            return self.size

        def finalize(self, params):
            seen.append(("finalize", self.site.kind))
            return params

        def apply(self, x, params):
            rows = params["weight"]
            return rows[x] if self.site.kind == "embedding" else x @ rows.T

    class Scheme:
        def for_site(self, site):
            seen.append(site)
            return Layer(site)

    def wrap(site, layer):
        wrapped.append(site.kind)
        return layer

    build = Builder(Scheme(), Recorder(), device=CPU, dtype=torch.float32, wrap=wrap)
    embedding = build.embedding(6, 4, "embed")
    head = build.lm_head(6, 4, "lm_head", tied_to=embedding)
    (group,) = build.groups
    stored = {"weight": group.decode("weight", PlainTensor("embed.weight", torch.ones(6, 4)))}
    for layer, params in group.finalize(stored):
        layer.bind(params)
    sites = [LayerSite(kind, "embed", 4, [("", 6)]) for kind in ("embedding", "lm_head")]
    told = [("declare", "embedding"), ("decode", "embedding"), ("finalize", "embedding"), ("finalize", "lm_head")]
    assert [one for one in seen if isinstance(one, LayerSite)] == sites
    assert [one for one in seen if not isinstance(one, LayerSite)] == told
    assert wrapped == ["embedding", "lm_head"] and group.final_bytes == 30
    assert torch.equal(embedding(torch.tensor([0, 5])), torch.ones(2, 4))
    assert torch.equal(head(torch.ones(2, 4)), torch.full((2, 6), 4.0)), "the embedding's weights"


def test_a_quantization_method_repacks_every_reader_of_tied_weights_by_itself():
    """`finalize` sees what was stored, once for the embedding and once for the head."""

    class Scaled(Plain):
        def for_site(self, site):
            layer = super().for_site(site)
            factor = 2 if site.kind == "lm_head" else 3
            layer.finalize = lambda params: {name: value * factor for name, value in params.items()}
            prefixes.append((site.kind, site.prefix))
            return layer

    prefixes: list[tuple[str, str]] = []
    build = Builder(Scaled(QuantContext(CPU, torch.float32, {})), Recorder(), device=CPU, dtype=torch.float32)
    embedding = build.embedding(6, 4, "embed")
    head = build.lm_head(6, 4, "lm_head", tied_to=embedding)
    assert prefixes == [("embedding", "embed"), ("lm_head", "embed")]
    assert build.tied == {"lm_head.weight"}
    (group,) = build.groups
    stored = {"weight": torch.arange(24.0).view(6, 4)}
    for layer, params in group.finalize(stored):
        layer.bind(params)
    torch.testing.assert_close(embedding(torch.tensor([1])), 3 * stored["weight"][1:2])
    torch.testing.assert_close(head(torch.ones(1, 4)), 2 * stored["weight"].sum(1)[None])
