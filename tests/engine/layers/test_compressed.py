"""Attention to compressed entries of the builder: what is called with what, and what is refused."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from core_plugin_unquantized.plain import Plain

from core.api import CompressedSite, KVLayout, KVSpec, PickSite, PluginError, QuantContext, Routing
from core.layers.builder import Builder
from core.layers.experts import TableRouter

CPU = torch.device("cpu")
SIZES = {"num_heads": 2, "head_dim": 6, "scale": 0.5, "ratio": 4}


class Layer:
    """What a backend hands out; remembers what it is given."""

    def __init__(self, site):
        self.site, self.calls = site, []
        self.found = (torch.zeros(5, 2, 6), torch.zeros(5, 2))

    def write(self, *given):
        self.calls.append(("write", *given))

    def forward(self, *given):
        self.calls.append(("forward", *given))
        return self.found


class Backend:
    def compressed_layout(self, site):
        return KVLayout((16 // site.ratio, site.head_dim), torch.float32)

    def compressed(self, site):
        self.layer = Layer(site)
        return self.layer

    def picker_layout(self, site):
        return KVLayout((16 // site.ratio, site.key_dim), torch.float32)

    def picker(self, site):
        return Layer(site)


def builder(backend):
    return Builder(Plain(QuantContext(CPU, torch.float32, {})), backend, device=CPU, dtype=torch.float32)


def made(picks=None, backend=None):
    backend = backend or Backend()
    module = builder(backend).compressed_attention(3, **SIZES, picks=picks)
    module.kv = object()
    return module, backend


STEP = SimpleNamespace(token_ids=torch.zeros(5, dtype=torch.int64), plans=["plan"])
Q, ENTRIES, PICKED = torch.zeros(5, 2, 6), torch.zeros(5, 6), torch.zeros(5, 3, dtype=torch.int32)


def test_entries_are_written_before_queries_see_them():
    module, backend = made(picks=3)
    assert module(Q, ENTRIES, STEP, PICKED) == backend.layer.found
    assert backend.layer.site == CompressedSite(3, 2, 6, 0.5, 4, 3)
    assert backend.layer.calls == [("write", ENTRIES, module.kv, "plan"), ("forward", Q, module.kv, "plan", PICKED)]
    assert (module.spec(backend), module.layout(backend).bytes_per_block) == (KVSpec(), 4 * 6 * 4)


def test_a_picker_has_the_ratio():
    build = builder(Backend())
    module = build.picker(4, num_heads=3, key_dim=7, scale=0.25, picks=4, ratio=4)
    assert module.site == PickSite(4, 3, 7, 0.25, 4, 4)
    assert module.layout(Backend()).block_shape == (4, 7)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ((Q[:4], ENTRIES, STEP), "the query is"),
        ((Q, ENTRIES.double(), STEP), "the entry is"),
        ((Q, ENTRIES, STEP, PICKED), "what is picked is"),
    ],
)
def test_what_does_not_fit_is_refused_before_the_backend_sees_it(given, told):
    module, backend = made()
    with pytest.raises(PluginError, match=f"CORE-P170 .*{told}"):
        module(*given)
    assert backend.layer.calls == []


@pytest.mark.parametrize(
    ("found", "told"),
    [
        ((torch.zeros(5, 12), torch.zeros(5, 2)), "its result is"),
        ((torch.zeros(5, 2, 6), torch.zeros(5, 2).double()), "its sums is"),
        (torch.zeros(5, 2, 6), "forward"),
    ],
)
def test_what_a_backend_gives_wrongly_is_told(found, told):
    module, backend = made()
    backend.layer.found = found
    with pytest.raises(PluginError, match=rf"CORE-P1(71|08) .*{told}"):
        module(Q, ENTRIES, STEP)


def test_a_backend_without_the_part_is_refused():
    with pytest.raises(PluginError, match=r"CORE-P110 .*attention to compressed entries"):
        made(backend=SimpleNamespace())


def test_a_table_names_experts_and_scores_weigh_them():
    table = torch.tensor([[0.0, 2.0], [3.0, 1.0]])
    logits = torch.randn(3, 4, generator=torch.Generator().manual_seed(1))
    routing = Routing(top_k=2, score="sqrt_softplus", renormalize=True, factor=1.5)
    router = TableRouter(lambda x: logits, lambda: table, routing)
    weights, ids = router(torch.zeros(3, 8), torch.tensor([1, 0, 1]))
    assert ids.tolist() == [[3, 1], [0, 2], [3, 1]]
    scores = (1 + logits.exp()).log().sqrt().gather(1, ids.long())
    torch.testing.assert_close(weights, scores / scores.sum(1, keepdim=True) * 1.5)
    with pytest.raises(ValueError, match="named by a table of token ids"):
        router(torch.zeros(3, 8))
