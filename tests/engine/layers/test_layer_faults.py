"""What models pass to layers, and what plugins make of it, is compared with the layer; whoever is wrong is named."""

from __future__ import annotations

from types import SimpleNamespace
from typing import ClassVar

import pytest
import torch
from core_plugin_unquantized.plain import Plain

from core.api import KernelSpec, PluginError, QuantContext, RopeConfig
from core.layers.builder import Builder
from core.layers.guard import Owners
from core.layers.kernels import KernelTable, PlannedKernel
from core.ops.products import ReferenceProduct
from core.worker.guarded import GuardedBackend, GuardedModel

CPU, TOKENS, HEADS, KV_HEADS, DIM, WIDTH = torch.device("cpu"), 5, 4, 2, 8, 32
MODEL, ATTENTION = "model implementation 'm' (a 1)", "attention backend 'b' (a 2)"
QUANT, PRODUCT = "quantization method 'q' (a 3)", "kernel 'p' (a 3)"
_IDS = torch.zeros(TOKENS, dtype=torch.int64)
STEP = SimpleNamespace(token_ids=_IDS, positions=_IDS, plan=None, plans=[None])


class Backend:
    """Attention that gives what it is told to."""

    def __init__(self):
        self.answer = lambda q: q.flatten(1)

    def layer(self, site):
        return SimpleNamespace(write_kv=lambda k, v, kv, plan: None, forward=lambda q, kv, plan: self.answer(q))

    def encoder(self, site):
        return SimpleNamespace(forward=lambda q, k, v, plan: self.answer(q))


class Answers(ReferenceProduct):
    """The reference product, whose results may be replaced."""

    answer: ClassVar = []

    def apply(self, x, params):
        return self.answer[0](x) if self.answer else super().apply(x, params)


@pytest.fixture
def build():
    owners = Owners(MODEL, ATTENTION, QUANT)
    spec = KernelSpec(
        name="p", op="linear", impl="p:P", api=1, summary="s", forms=("*",), devices={"cpu"}, dtypes={"float32"}
    )
    kernels = KernelTable("cpu", "float32", [PlannedKernel(spec, "a 3", lambda: lambda place: Answers(place, {}))])
    Answers.answer.clear()
    form = Plain(QuantContext(CPU, torch.float32, {}))
    return Builder(form, Backend(), device=CPU, dtype=torch.float32, max_positions=64, owners=owners, kernels=kernels)


def bound(layer, **params):
    layer.bind({name: torch.ones(shape) for name, shape in params.items()})
    return layer


def layers(build):
    """Name -> a call of each layer with its own arguments, some of which may be replaced."""
    linear = bound(build.linear(WIDTH, 6, "mlp.up"), weight=(6, WIDTH))
    embedding = bound(build.embedding(50, WIDTH, "embed"), weight=(50, WIDTH))
    norms = [bound(build.rms_norm(WIDTH, 1e-5, "norm"), weight=WIDTH)]
    norms.append(bound(build.layer_norm(WIDTH, 1e-5, "other"), weight=WIDTH, bias=WIDTH))
    rope = build.rope(RopeConfig(head_dim=DIM, rotary_dim=DIM))
    geometry = {"num_heads": HEADS, "num_kv_heads": KV_HEADS, "head_dim": DIM, "scale": 1.0}
    attention, encoder = build.attention(3, **geometry), build.encoder_attention(4, **geometry)
    attention.kv = torch.zeros(1)
    x, q, k = torch.randn(TOKENS, WIDTH), torch.randn(TOKENS, HEADS, DIM), torch.randn(TOKENS, KV_HEADS, DIM)
    return {
        "linear": lambda x=x: linear(x),
        "embedding": lambda x=STEP.token_ids: embedding(x),
        "rms_norm": lambda x=x: norms[0](x),
        "add_rms_norm": lambda x=x, residual=x: norms[0].add(x, residual),
        "layer_norm": lambda x=x: norms[1](x),
        "add_layer_norm": lambda x=x, residual=x: norms[1].add(x, residual),
        "rope": lambda positions=STEP.token_ids, q=q, k=k: rope(positions, q, k),
        "attention": lambda q=q, k=k, v=k, step=STEP: attention(q, k, v, step),
        "turned": lambda q=q, k=k, v=k, step=STEP: attention(q, k, v, step, rope=rope),
        "encoder": lambda q=q, k=k, v=k, step=STEP: encoder(q, k, v, step),
    }


@pytest.mark.parametrize(
    ("layer", "given", "told"),
    [
        ("linear", {"x": torch.randn(TOKENS, 31)}, "linear 'mlp.up': its input is (5, 31) float32 on cpu; expected"),
        ("linear", {"x": torch.randn(TOKENS, WIDTH).half()}, "(5, 32) float16 on cpu; expected (tokens, 32)"),
        ("linear", {"x": torch.randn(1, TOKENS, WIDTH)}, "its input is (1, 5, 32) float32"),
        ("linear", {"x": None}, "its input is None; expected (tokens, 32) float32 on cpu"),
        ("embedding", {"x": torch.zeros(5, dtype=torch.int32)}, "embedding 'embed': its input is (5,) int32"),
        ("rms_norm", {"x": torch.randn(TOKENS, 33)}, "rms_norm 'norm': its input is (5, 33) float32"),
        ("rms_norm", {"x": [1]}, "rms_norm 'norm': its input is a list"),
        ("add_rms_norm", {"residual": torch.randn(TOKENS, 31)}, "is (5, 31) float32 on cpu; expected (5, 32)"),
        ("add_rms_norm", {"residual": torch.randn(4, WIDTH)}, "the residual is (4, 32) float32"),
        ("add_rms_norm", {"residual": None}, "the residual is None"),
        ("layer_norm", {"x": torch.randn(TOKENS, WIDTH).double()}, "layer_norm 'other': its input is (5, 32) float64"),
        ("add_layer_norm", {"residual": torch.randn(1, WIDTH)}, "the residual is (1, 32) float32"),
        ("rope", {"positions": torch.arange(4)}, "the rotary embedding: the query is (5, 4, 8)"),
        ("rope", {"positions": torch.zeros(5)}, "positions is (5,) float32"),
        ("rope", {"q": torch.randn(TOKENS, HEADS, 6)}, "the query is (5, 4, 6) float32"),
        ("rope", {"k": torch.randn(4, KV_HEADS, DIM)}, "the key is (4, 2, 8) float32"),
        ("attention", {"q": torch.randn(4, HEADS, DIM)}, "attention layer 3: the query is (4, 4, 8)"),
        ("attention", {"q": torch.randn(6, HEADS, DIM)}, "the query is (6, 4, 8) float32 on cpu; expected (5, 4, 8)"),
        ("attention", {"q": torch.randn(TOKENS, 3, DIM)}, "the query is (5, 3, 8)"),
        ("attention", {"k": torch.randn(TOKENS, KV_HEADS, 4)}, "the key is (5, 2, 4)"),
        ("attention", {"v": torch.randn(TOKENS, KV_HEADS, DIM).bfloat16()}, "the value is (5, 2, 8) bfloat16"),
        ("attention", {"v": None}, "the value is None"),
        ("turned", {"q": torch.randn(4, HEADS, DIM)}, "the rotary embedding: the query is (4, 4, 8)"),
        ("turned", {"v": torch.randn(4, KV_HEADS, DIM)}, "attention layer 3: the value is (4, 2, 8)"),
        ("turned", {"v": None}, "the value is None"),
        ("encoder", {"k": torch.randn(4, KV_HEADS, DIM)}, "attention layer 4: the key is (4, 2, 8)"),
    ],
)
def test_a_model_that_passes_something_else_is_named(build, layer, given, told):
    calls = layers(build)
    calls[layer]()
    with pytest.raises(PluginError) as caught:
        calls[layer](**given)
    assert caught.value.code == "CORE-P170"
    assert caught.value.message.startswith(f"{MODEL} called ") and told in caught.value.message


def boom(*given):
    raise KeyError("boom")


@pytest.mark.parametrize(
    ("answer", "code", "told"),
    [
        (boom, "CORE-P108", "raised KeyError: 'boom' (layers/test_layer_faults.py:"),
        (lambda x: torch.zeros(4, 7), "CORE-P171", "its result is (4, 7) float32 on cpu; expected (5, "),
        (lambda x: None, "CORE-P171", "its result is None"),
    ],
)
def test_a_plugin_that_fails_or_gives_something_else_is_named(build, answer, code, told):
    calls = layers(build)
    build._backend.answer = answer
    Answers.answer.append(answer)
    for layer, where in {
        "linear": f"{PRODUCT}, linear 'mlp.up' of {MODEL}: apply()",
        "attention": f"{ATTENTION}, attention layer 3 of {MODEL}: forward()",
        "encoder": f"{ATTENTION}, attention layer 4 of {MODEL}: forward()",
    }.items():
        with pytest.raises(PluginError) as caught:
            calls[layer]()
        assert caught.value.code == code
        assert caught.value.message.startswith(where) and told in caught.value.message


@pytest.mark.parametrize("lacking", ["write_kv", "forward"])
def test_an_attention_layer_that_lacks_a_method_is_refused_where_it_is_handed_out(build, lacking):
    whole = build._backend.layer(None)
    delattr(whole, lacking)
    build._backend.layer = lambda site: whole
    with pytest.raises(PluginError, match=rf"CORE-P160 .*'b' \(a 2\): layer\(\) .* AttentionLayer: it lacks {lacking}"):
        build.attention(0, num_heads=1, num_kv_heads=1, head_dim=4, scale=1.0)


def test_a_format_that_raises_is_told_where_its_layer_is_made(build):
    build._form.form = boom
    with pytest.raises(
        PluginError, match=r"CORE-P108 .*'q' \(a 3\): form\(\) of linear 'some' raised KeyError: 'boom'"
    ):
        build.linear(4, 4, "some")


def test_what_a_hook_makes_of_a_layer_fits_too(build):
    build._wrap = lambda site, layer: object()
    with pytest.raises(PluginError, match="CORE-P160 hook plugins: core_layer handed out a object"):
        build.linear(4, 4, "some")


@pytest.mark.parametrize(
    ("method", "answer", "told"),
    [
        ("forward", boom, r"CORE-P108 .*: forward\(\) raised KeyError: 'boom' \(layers/test_layer_faults.py"),
        (
            "forward",
            lambda step: torch.zeros(4, 3),
            r"CORE-P170 .*: forward\(\) returned \(4, 3\) .* \(5, hidden",
        ),
        ("forward", lambda step: None, r"CORE-P108 .*forward\(\)"),
        ("logits", boom, r"CORE-P108 .*: logits\(\) raised KeyError"),
        (
            "logits",
            lambda hidden: torch.zeros(5, 12),
            r"CORE-P170 .*: logits\(\) returned \(5, 12\) .* \(5, 11\)",
        ),
        ("logits", lambda hidden: torch.zeros(4, 11), r"CORE-P170 .*: logits\(\) returned \(4, 11\)"),
        ("logits", lambda hidden: torch.zeros(5, 11, dtype=torch.int64), r"CORE-P170 .*int64"),
        ("classify", lambda pooled: torch.zeros(4, 3), r"CORE-P170 .*: classify\(\) returned \(4, 3\)"),
    ],
)
def test_what_a_model_returns_is_compared_with_the_step(method, answer, told):
    model = GuardedModel(SimpleNamespace(**{method: answer}), MODEL, 11)
    given = STEP if method == "forward" else torch.zeros(TOKENS, 3)
    with pytest.raises(PluginError, match=told) as caught:
        getattr(model, method)(given)
    assert MODEL in caught.value.message


def test_a_plan_that_raises_is_the_backends():
    with pytest.raises(PluginError, match=r"CORE-P108 attention backend 'b' \(a 2\): plan\(\) raised KeyError: 'boom'"):
        GuardedBackend(SimpleNamespace(plan=boom), ATTENTION).plan(None)


class Turning(Backend):
    """Attention whose layers say what they were called with."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def layer(self, site):
        made = super().layer(site)
        made.write_kv = lambda k, v, kv, plan: self.calls.append(("write_kv", k))
        made.write_rotated = self.turn
        return made

    def turn(self, q, k, v, rotation, kv, plan):
        self.calls.append(("write_rotated", rotation))
        return q + 1


@pytest.mark.parametrize("rotates", [True, False])
@pytest.mark.parametrize("named", [(), ("rotary",)])
def test_attention_rotates_where_the_backend_does_not(rotates, named):
    """By the table of the rotary embedding; queries without keys are rotated by core, and what the user names goes."""
    backend, kernels = Turning(), KernelTable("cpu", "float32", named=named)
    form = Plain(QuantContext(CPU, torch.float32, {}))
    options = {"device": CPU, "dtype": torch.float32, "max_positions": 64, "kernels": kernels, "rotates": rotates}
    build = Builder(form, backend, **options)
    attention = build.attention(0, num_heads=HEADS, num_kv_heads=KV_HEADS, head_dim=DIM, scale=1.0)
    attention.kv, rope = torch.zeros(1), build.rope(RopeConfig(head_dim=DIM, rotary_dim=DIM, interleaved=False))
    step = SimpleNamespace(token_ids=_IDS, positions=torch.arange(TOKENS), plan=None, plans=[None])
    q, k = torch.randn(TOKENS, HEADS, DIM), torch.randn(TOKENS, KV_HEADS, DIM)
    turned, keys = rope(step.positions, q, k)
    out = attention(q, k, k, step, rope=rope)
    ((name, given),) = backend.calls
    if rotates and not named:
        assert name == "write_rotated" and torch.equal(out, (q + 1).flatten(1))
        assert given.positions is step.positions and not given.interleaved and given.table.shape == (64, 2 * DIM)
    else:
        assert name == "write_kv" and torch.equal(given, keys) and torch.equal(out, turned.flatten(1))
    assert torch.equal(attention(q, None, None, step, rope=rope), turned.flatten(1)) and len(backend.calls) == 1
    encoder = build.encoder_attention(1, num_heads=HEADS, num_kv_heads=KV_HEADS, head_dim=DIM, scale=1.0)
    assert torch.equal(encoder(q, k, k, step, rope=rope), turned.flatten(1))


def test_a_backend_that_only_says_that_it_rotates_is_refused():
    form = Plain(QuantContext(CPU, torch.float32, {}))
    build = Builder(form, Backend(), device=CPU, dtype=torch.float32, rotates=True)
    with pytest.raises(PluginError, match=r"CORE-P110 .*layers that rotate while they store"):
        build.attention(0, num_heads=HEADS, num_kv_heads=KV_HEADS, head_dim=DIM, scale=1.0)
