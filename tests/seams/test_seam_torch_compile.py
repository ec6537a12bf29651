"""Models compiled by torch.compile: the same tokens, in pieces between attention layers; what is kept for later."""

from __future__ import annotations

import logging
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from core_plugin_torch_compile import forward as compiled_forward
from core_plugin_torch_compile.manifest import core_layer, core_model_loaded
from core_plugin_torch_compile.options import LOGGER
from core_plugin_torch_compile.sources import key_of
from core_plugin_torch_compile.store import Store

from core import LLM, SamplingParams
from core.api.attention import AttentionSite, Rotation

ENGINE = {
    "dtype": "float32",
    "attention_backend": "torch_sdpa",
    "max_num_seqs": 4,
    "max_num_batched_tokens": 24,
    "max_model_len": 64,
    "block_size": 16,
    "num_blocks": 32,
}
GREEDY = SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    torch._dynamo.reset()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    yield tmp_path / "core" / "torch_compile"
    torch._dynamo.reset()


def tokens(plugins, model, prompts, backend="off", **further):
    """Return the tokens, and the model's `forward`."""
    options = {"torch_compile": {"backend": backend, **further}}
    with LLM(model, **ENGINE, platform="accelerator", graphs="none", plugin_options=options) as llm:
        found = [one.outputs[0].token_ids for one in llm.generate(prompts, GREEDY)]
        found += [one.outputs[0].token_ids for one in llm.generate(prompts[:1], GREEDY)]
        return found, llm._engine._core.loop.executor._worker._loaded.model.forward


# -- a model of three layers -------------------------------------------------------------------------------------------

INFO = {"architecture": "Toy", "device": "cpu", "num_parameters": 9}


class Attention:
    """What a backend makes: the plan is nothing that torch could look into."""

    def __init__(self):
        self.steps = 0

    def write_kv(self, k, v, kv, plan):
        kv[: len(k)] = k + v

    def forward(self, q, kv, plan):
        self.steps += plan["count"].pop()
        return q.flatten(1).cumsum(0) + kv[: len(q)].flatten(1)

    def use_scales(self, key):
        self.key = key


class Block:
    """A layer of the model."""

    def __init__(self, model, number):
        self.model, self.number = model, number
        self.kv = torch.zeros(16, 2, 4)

    def __call__(self, x, step):
        q = (x @ self.model.weights[self.number]).view(-1, 2, 4)
        self.model.attention.write_kv(q, q, self.kv, step.plans[0])
        return x + torch.relu(self.model.attention.forward(q, self.kv, step.plans[0]))


class Toy:
    def __init__(self, options, site):
        layer = core_layer(site, Attention(), options)
        self.attention = layer or Attention()
        self.weights = [torch.randn(8, 8, generator=torch.Generator().manual_seed(i)) for i in range(4)]
        self.blocks = [Block(self, number) for number in range(3)]

    def forward(self, step):
        x = torch.nn.functional.embedding(step.token_ids, self.weights[3])
        for block in self.blocks:
            x = block(x, step)
        return x


SITE, OTHER = AttentionSite(0, 2, 2, 4, 1.0), SimpleNamespace(layer=0)
"""A layer of plain attention, and one of another kind, whose methods nothing is known of."""


def step_of(tokens):
    ids = torch.arange(tokens) % 8
    return SimpleNamespace(token_ids=ids, positions=ids, plans=[{"count": [1, 1, 1] * 9}], states=None)


def toy(site=SITE, **options):
    model = Toy(options, site)
    core_model_loaded(model, INFO, options)
    return model


@pytest.mark.covers("COMP-01")
def test_off_is_nothing():
    layer = Attention()
    assert core_layer(SimpleNamespace(layer=0), layer, {}) is None
    model = toy()
    assert model.forward.__func__ is Toy.forward and isinstance(model.attention, Attention)


@pytest.mark.covers("COMP-01")
@pytest.mark.parametrize(
    ("site", "fewest", "most"),
    # Before, between and behind the attention of three layers; for several tokens and for one. Where pieces end at what
    # torch may not see, there are two in each layer: what is between layers runs as it is, and of what comes out of it
    # torch learns with the second step that its sizes differ.
    [(SITE, 4 * 2, 4 * 2), (OTHER, 6, 18)],
    ids=["spans", "breaks"],
)
def test_a_model_is_compiled_in_the_pieces_between_its_attention_layers(caplog, site, fewest, most):
    caplog.set_level(logging.INFO, LOGGER)
    model, plain = toy(site, backend="eager", cache=False), toy()
    for tokens in (5, 7, 1, 6, 1, 11):
        torch.testing.assert_close(model.forward(step_of(tokens)), plain.forward(step_of(tokens)))
    pieces = model.forward.graphs
    assert fewest <= pieces <= most and model.attention.steps == plain.attention.steps == 18
    assert "pieces by eager in" in caplog.text
    for tokens in (3, 9, 1):
        model.forward(step_of(tokens))
    assert model.forward.graphs == pieces


def test_a_piece_reaches_from_one_attention_to_the_next(monkeypatch):
    """What is behind the attention of a layer and what is before that of the next one are compiled together."""
    made = []
    model = toy(backend="eager", cache=False)
    plain = model.forward._make

    def make(module, inputs):
        made.append([node.target for node in module.graph.nodes if node.op.startswith("call")])
        return plain(module, inputs)

    monkeypatch.setattr(model.forward, "_make", make)
    model.forward(step_of(5))
    calls = [[getattr(one, "__name__", str(one)) for one in piece] for piece in made]
    assert len(calls) == 4 and not any("core_torch_compile" in one for piece in calls for one in piece)
    assert "embedding" in calls[0] and "relu" not in calls[0] and "matmul" not in calls[3]
    assert all("relu" in one and "matmul" in one for one in calls[1:3])


class Turning(Attention):
    """A layer that rotates while it stores."""

    def write_rotated(self, q, k, v, rotation, kv, plan):
        turn = rotation.table[rotation.positions, None, :4]
        kv[: len(k)] = k * turn + v
        return q * turn - float(rotation.interleaved)


def test_layers_that_rotate_while_they_store_are_cut_out_like_all_attention():
    def call(block, x, step):
        q = (x @ block.model.weights[block.number]).view(-1, 2, 4)
        rotation = Rotation(step.positions, torch.linspace(0, 1, 64).view(8, 8), True)
        q = block.model.attention.write_rotated(q, q, q, rotation, block.kv, step.plans[0])
        return x + torch.relu(block.model.attention.forward(q, block.kv, step.plans[0]))

    def turning(**options):
        model = Toy({}, SITE)
        model.attention = core_layer(SITE, Turning(), options) or Turning()
        model.blocks = [type("Turned", (Block,), {"__call__": call})(model, number) for number in range(3)]
        core_model_loaded(model, INFO, options)
        return model

    model, plain = turning(backend="eager", cache=False), turning()
    for tokens in (5, 1, 7):
        torch.testing.assert_close(model.forward(step_of(tokens)), plain.forward(step_of(tokens)))
    assert model.forward.graphs == 8 and model.attention.steps == plain.attention.steps == 9


def test_each_step_is_attended_by_its_own_plans():
    """A plan is no part of what is compiled: steps of several cache groups, and of graphs, have plans of their own."""
    model = toy(backend="eager", cache=False)
    first, second = step_of(5), step_of(5)
    second.plans = [{"count": [2, 2, 2]}]
    for step in (first, second):
        model.forward(step)
    assert model.attention.steps == 3 + 6 and not second.plans[0]["count"] and model.forward.graphs == 4


def test_new_weights_are_read_by_what_was_compiled_before():
    model = toy(backend="eager", cache=False)
    model.forward(step_of(4))
    forward, pieces = model.forward, model.forward.graphs
    model.weights = [2 * weight for weight in model.weights]
    core_model_loaded(model, INFO, {"backend": "eager", "cache": False})
    plain = toy()
    plain.weights = model.weights
    torch.testing.assert_close(model.forward(step_of(4)), plain.forward(step_of(4)))
    assert model.forward is forward and forward.graphs == pieces


def test_an_attention_layer_is_its_own_but_for_what_steps_call():
    layer = Attention()
    for site in (SITE, OTHER):
        wrapped = core_layer(site, layer, {"backend": "eager"})
        wrapped.use_scales(site)
        assert layer.key == site and not hasattr(wrapped, "forward_picked")
    assert core_layer(SimpleNamespace(prefix="linear"), layer, {"backend": "eager"}) is None


def test_what_it_saves_is_printed_after_so_many_steps(caplog):
    caplog.set_level(logging.INFO, LOGGER)
    model = toy(backend="eager", cache=False, measure=2)
    model.forward(step_of(4))
    assert "a step of" not in caplog.text
    model.forward(step_of(1))
    model.forward(step_of(5))
    assert caplog.text.count("a step of 4 tokens takes") == caplog.text.count("a step of 1 token takes") == 1
    assert "a step of 5 tokens" not in caplog.text
    recurrent = step_of(4)
    recurrent.states = object()
    assert not toy(backend="eager", cache=False, measure=2).forward._comparison.wants(recurrent)


def test_what_cannot_be_compiled_runs_as_it_is(monkeypatch, caplog):
    def fails(module, inputs):
        raise RuntimeError("no kernel for this")

    model, plain = toy(backend="eager", cache=False), toy()
    monkeypatch.setattr(model.forward, "_make", fails)
    for tokens in (4, 5):
        torch.testing.assert_close(model.forward(step_of(tokens)), plain.forward(step_of(tokens)))
    assert caplog.text.count("runs as it is") == 1 and "no kernel for this" in caplog.text


# -- what is kept ------------------------------------------------------------------------------------------------------


@pytest.fixture
def artifacts(monkeypatch):
    """What torch would save, and was given."""
    made = SimpleNamespace(saved=b"code", given=[])
    monkeypatch.setattr(torch.compiler, "save_cache_artifacts", lambda: (made.saved, None))
    monkeypatch.setattr(torch.compiler, "load_cache_artifacts", made.given.append)
    return made


@pytest.mark.covers("COMP-07")
def test_a_later_start_gets_what_an_earlier_one_compiled(home, artifacts, caplog):
    caplog.set_level(logging.INFO, LOGGER)
    for start in range(2):
        torch._dynamo.reset()
        model = toy(backend="eager")
        for _ in range(2):
            model.forward(step_of(4))
        assert artifacts.given == [b"code"] * start
    assert "without what an earlier start left" in caplog.text
    assert home.stat().st_mode & 0o777 == 0o700 and len(list(home.glob("*.bin"))) == 1


@pytest.mark.covers("COMP-07")
def test_damaged_and_foreign_pieces_are_compiled_anew(home, artifacts, caplog):
    store = Store(home)
    store.save("key", b"code", 1.5)
    assert store.load("key") == (b"code", 1.5) and store.load("other") is None
    (blob,) = home.glob("*.bin")
    blob.write_bytes(b"codf")
    assert store.load("key") is None and "is damaged" in caplog.text and not blob.exists()
    store.save("key", b"code", 1.5)
    (home / "key.json").write_text("{")
    assert store.load("key") is None and "cannot be read" in caplog.text
    store.save("key", b"code", 1.5)
    home.chmod(0o770)
    assert store.load("key") is None and "is not used, since others" in caplog.text
    store.save("second", b"more", 1.0)
    assert len(list(home.glob("*.bin"))) == 1


@pytest.mark.covers("COMP-08")
def test_equal_pieces_of_several_keys_are_kept_once(home):
    store = Store(home)
    for key in ("one", "two", "three"):
        store.save(key, b"code", 1.0)
    assert len(list(home.glob("*.bin"))) == 1 and len(list(home.glob("*.json"))) == 3
    assert not list(home.glob(".*"))


@pytest.mark.covers("COMP-07")
def test_a_key_is_another_for_another_backend_model_and_torch(monkeypatch):
    model, keys = toy(), set()
    keys.add(key_of(model, INFO, "eager"))
    assert key_of(model, INFO, "eager") in keys
    keys |= {key_of(model, INFO, "inductor"), key_of(model, {**INFO, "architecture": "Other"}, "eager")}
    monkeypatch.setattr(torch, "__version__", "9.9")
    keys.add(key_of(model, INFO, "eager"))
    assert len(keys) == 4


@pytest.mark.covers("COMP-07")
def test_pieces_that_cannot_be_kept_or_used_end_nothing(home, artifacts, monkeypatch, caplog):
    def fails(*_):
        raise RuntimeError("not this one")

    monkeypatch.setattr(torch.compiler, "save_cache_artifacts", fails)
    model = toy(backend="eager")
    for _ in range(2):
        model.forward(step_of(4))
    assert "torch_compile.cache=false" in caplog.text and "another torch_compile.backend" in caplog.text
    Store(home).save(key_of(model, INFO, "eager"), b"code", 1.0)
    monkeypatch.setattr(torch.compiler, "load_cache_artifacts", fails)
    toy(backend="eager").forward(step_of(4))
    assert "cannot be used (not this one)" in caplog.text


LAYERS = 3
"""Of the tiny Llama."""

TRACES = 3
"""Of whole spans: for several tokens, for one, and before with the small cache of the step that measures memory."""


# -- engines -----------------------------------------------------------------------------------------------------------


@pytest.mark.exhaustive
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_the_tokens_are_those_without(plugins, llama, prompt, caplog, backend):
    plugins("fake_accelerator")
    prompts = [prompt(9), prompt(4, 1), prompt(30, 2)]
    due, plain = tokens(plugins, llama, prompts)
    assert not isinstance(plain, compiled_forward.CompiledForward)
    caplog.set_level(logging.INFO, LOGGER)
    found, forward = tokens(plugins, llama, prompts, backend, measure=3)
    assert found == due and forward.seconds > 0
    assert forward.graphs == TRACES * (LAYERS + 1)
    assert f"pieces by {backend} in" in caplog.text and "a step of 1 token takes" in caplog.text


FAMILIES = Path(__file__).parents[2] / "plugins" / "models"
OTHERS = {"gemma2": "gemma", "minicpm3": "minicpm", "mamba": "mamba"}
"""Row -> its plugin: two cache groups, latents at which torch stops, and states."""


@pytest.mark.exhaustive
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", OTHERS)
def test_other_models_give_the_same(plugins, prompt, tmp_path, name, caplog):
    plugins("fake_accelerator")
    spec = spec_from_file_location("rows_of_a_family", FAMILIES / OTHERS[name] / "tests" / "rows.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    model = str(next(row for row in module.ROWS if row.name == name).write(tmp_path / name))
    prompts = [prompt(9), prompt(4, 1), prompt(30, 2)]
    due, _ = tokens(plugins, model, prompts)
    found, forward = tokens(plugins, model, prompts, "eager", cache=False)
    assert found == due and forward.graphs > 2 and "cannot be compiled" not in caplog.text


@pytest.mark.exhaustive
@pytest.mark.timeout(1200)
def test_compile_is_a_flag_and_says_what_it_costs_and_saves(plugins, llama, prompt, caplog, home):
    """`--compile` is inductor; graphs hold what was compiled, and a later start has what this one kept."""
    plugins("fake_accelerator")

    def started(**options):
        with LLM(llama, **ENGINE, platform="accelerator", **options) as llm:
            found = [one.outputs[0].token_ids for one in llm.generate([prompt(9), prompt(4, 1)], GREEDY)]
            worker = llm._engine._core.loop.executor._worker
            return found, llm._engine.ready.facts["graphs"], worker._loaded.model.forward

    due, facts, _ = started()
    caplog.set_level(logging.INFO, LOGGER)
    found, same, forward = started(compile=True)
    assert found == due and same == facts and forward.graphs == TRACES * (LAYERS + 1)
    assert "12 pieces by inductor in" in caplog.text and "a step of 1 token takes" in caplog.text
    assert "cannot be compiled" not in caplog.text and "Backend compiler exception" not in caplog.text
    assert len(list(home.glob("*.bin"))) >= 1
