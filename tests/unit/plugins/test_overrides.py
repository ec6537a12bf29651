"""The checkpoint's configuration with the user's changes, and the context that follows from its rotary scaling."""

from __future__ import annotations

import pytest

from core.api import CheckpointInfo, ConfigError, ModelShape, RopeConfig
from core.api.errors import CoreError
from core.config.resolved import Options
from core.engine.hashing import stable_key
from core.options.model import ModelOptions
from core.plugins.hooks import Hooks
from core.selection.overrides import doubts, overridden
from core.selection.resolver import Resolver, resolve

SIZES = {"vocab_size": 10, "num_layers": 1, "hidden_size": 64, "num_heads": 1, "num_kv_heads": 1, "head_dim": 64}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
OLD = {"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 2.0}}
NEW = {"rope_parameters": {"rope_theta": 5e5, "rope_type": "linear", "factor": 2.0}}
LISTS = {"short_factor": [1.0] * 32, "long_factor": [2.0] * 32, "original_max_position_embeddings": 32}


def stored(**config) -> CheckpointInfo:
    return CheckpointInfo(path="p", format="f", architecture="A", config={"architectures": ["A"], **config})


def changed(before, scaling=None, **overrides):
    return overridden(stored(**before), ModelOptions(hf_overrides=overrides, rope_scaling=scaling or {}))


def test_values_replace_those_of_the_checkpoint_and_null_takes_one_out():
    config = changed({"a": 1, "b": 2, "c": None}, a=3, b=None, d=[4]).config
    assert config == {"architectures": ["A"], "a": 3, "c": None, "d": [4]}


def test_without_changes_the_facts_are_the_same_object():
    facts = stored(**NEW)
    assert overridden(facts, ModelOptions()) is facts


@pytest.mark.parametrize("before", [OLD, NEW, {"rope_theta": 5e5}], ids=["transformers-4", "transformers-5", "plain"])
@pytest.mark.parametrize(
    ("scaling", "overrides", "theta"),
    [
        (YARN, {}, 5e5),
        ({}, {"rope_scaling": YARN}, 5e5),
        ({}, {"rope_parameters": YARN}, 5e5),
        ({}, {"rope_parameters": {**YARN, "rope_theta": 1e6}}, 1e6),
        (YARN, {"rope_theta": 1e6}, 1e6),
    ],
)
def test_a_new_rotary_scaling_replaces_the_old_one_under_every_key(before, scaling, overrides, theta):
    config = changed(before, scaling, **overrides).config
    assert config["rope_scaling"] == YARN
    assert config["rope_theta"] == theta
    assert config["rope_parameters"] == {**YARN, "rope_theta": theta}


@pytest.mark.parametrize("before", [OLD, NEW])
def test_a_new_base_leaves_the_scaling_and_null_takes_it_out(before):
    config = changed(before, rope_theta=1e6).config
    assert config["rope_theta"] == config["rope_parameters"]["rope_theta"] == 1e6
    assert config["rope_scaling"]["factor"] == config["rope_parameters"]["factor"] == 2.0
    config = changed(before, rope_scaling=None).config
    assert config["rope_parameters"] == {"rope_theta": 5e5} and not config.get("rope_scaling")


def test_parameters_by_kind_of_layer_are_kept_as_they_are():
    nested = {"full_attention": {"rope_theta": 1.0}, "sliding_attention": {"rope_theta": 2.0}}
    assert changed({}, rope_parameters=nested).config["rope_parameters"] == nested


@pytest.mark.parametrize(
    ("scaling", "overrides", "full"),
    [
        (YARN, {}, {**YARN, "rope_theta": 1e6}),
        ({}, {"rope_parameters": {**YARN, "rope_theta": 5e6}}, {**YARN, "rope_theta": 5e6}),
        ({}, {"rope_theta": 5e6}, {"rope_type": "linear", "factor": 8.0, "rope_theta": 5e6}),
    ],
)
def test_where_parameters_differ_by_kind_of_layer_those_that_see_the_whole_context_are_changed(
    scaling, overrides, full
):
    sliding = {"rope_type": "default", "rope_theta": 1e4}
    before = {"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6}, "sliding_attention": sliding}
    config = changed({"rope_parameters": before}, scaling, **overrides).config
    assert config["rope_parameters"] == {"full_attention": full, "sliding_attention": sliding}
    assert not config.get("rope_scaling")


def test_another_architecture_is_looked_for():
    assert changed({}, architectures=["B"]).architecture == "B"


@pytest.mark.parametrize(
    ("scaling", "overrides", "words"),
    [
        ({}, {"quantization_config": {}}, "cannot change 'quantization_config'.*--quantization"),
        ({}, {"eos_token_id": 1}, "cannot change 'eos_token_id'.*stop_token_ids"),
        ({}, {"architectures": "B"}, "'architectures' must be a list of names, not 'B'"),
        (YARN, {"rope_scaling": YARN}, "'rope_scaling' of --hf-overrides and --rope-scaling both"),
        ({}, {"rope_scaling": YARN, "rope_parameters": YARN}, "both set the rotary scaling. Keep one"),
    ],
)
def test_what_would_change_nothing_or_contradicts_itself_is_refused(scaling, overrides, words):
    with pytest.raises(ConfigError, match=f"CORE-C200 .*{words}"):
        changed({}, scaling, **overrides)


def test_a_slip_of_the_pen_is_told():
    shape = ModelShape(**SIZES, max_positions=8)
    facts = stored(max_position_embeddings=8)
    options = ModelOptions(hf_overrides={"max_positon_embeddings": 9, "is_causal": False, "entirely_new": 1})
    (said,) = doubts(facts, shape, options)
    assert "'max_positon_embeddings'" in said and "Did you mean 'max_position_embeddings'?" in said
    (said,) = doubts(facts, shape, ModelOptions(rope_scaling=YARN))
    assert said == "A names no rotary embeddings: a change of their scaling may do nothing"


def shape_with(**scaling) -> dict:
    rope = RopeConfig(head_dim=64, rotary_dim=64, max_positions=128, scaling=scaling)
    context = 128 if rope.rule == "foo" else rope.context
    return ModelShape(**SIZES, max_positions=context, ropes=(rope,)).model_dump(mode="json")


@pytest.fixture
def world(site):
    site.install_world()
    return site


def run(site, *, seed=None, max_model_len=None, **scaling):
    model = {"hf_overrides": {"shape": shape_with(**scaling)}, "max_model_len": max_model_len}
    options = Options.model_validate({"model": model, "kv": {"hash_seed": seed}})
    return resolve(options, catalogue=site.catalogue())


def test_the_changes_are_in_what_the_engine_starts_from(world):
    resolution = run(world, rope_type="yarn", factor=4.0)
    assert resolution.config.max_model_len == resolution.config.shape.max_positions == 512
    assert "ropes" in resolution.config.checkpoint.config["shape"]
    assert not resolution.warnings
    (models,) = [report for report in resolution.reports if report.group == "core.models"]
    assert models.notes[0] == "rotary scaling: yarn, a context of 512 tokens, 128 before scaling"
    assert models.notes[1].startswith('changed by the user: {"shape":')


def test_max_model_len_goes_up_to_the_scaled_context(world):
    assert run(world, max_model_len=512, rope_type="dynamic", factor=4.0).config.max_model_len == 512
    with pytest.raises(ConfigError, match=r"CORE-C110 .* 513 is greater than the 512 positions.*--rope-scaling"):
        run(world, max_model_len=513, rope_type="dynamic", factor=4.0)


def test_longrope_starts_with_the_original_context_and_says_so(world):
    resolution = run(world, rope_type="longrope", **LISTS)
    assert (resolution.config.max_model_len, resolution.config.shape.max_positions) == (32, 128)
    (warning,) = resolution.warnings
    assert warning.code == "CORE-C202" and "--max-model-len takes up to 128" in warning.message
    assert not run(world, max_model_len=100, rope_type="longrope", **LISTS).warnings


@pytest.mark.parametrize(
    ("scaling", "same"),
    [
        ({"rope_type": "yarn", "factor": 4.0}, True),
        ({"rope_type": "dynamic", "factor": 4.0}, False),
        ({"rope_type": "longrope", **LISTS}, False),
    ],
    ids=["yarn", "dynamic", "longrope"],
)
def test_blocks_of_another_scaling_or_context_have_other_hashes(world, scaling, same):
    first = stable_key(run(world, seed="s", max_model_len=64, **scaling).config, Hooks())
    assert first == stable_key(run(world, seed="s", max_model_len=64, **scaling).config, Hooks())
    assert first != stable_key(run(world, seed="s", max_model_len=64, rope_type="linear", factor=4.0).config, Hooks())
    assert (first == stable_key(run(world, seed="s", max_model_len=65, **scaling).config, Hooks())) is same


def test_a_rotary_scaling_that_nobody_computes_is_refused_and_explained(world):
    options = Options.model_validate({"model": {"hf_overrides": {"shape": shape_with(rope_type="foo")}}})
    resolver = Resolver(options, world.catalogue())
    with pytest.raises(
        CoreError, match=r"CORE-M125 .*demo.txt: rotary scaling 'foo' is not supported; supported: .*longrope"
    ):
        resolver.run()
    report = resolver.reports[-1]
    assert [(row.name, row.state) for row in report.rows] == [("llama", "rejected")]
    assert "rotary scaling 'foo' is not supported" in report.rows[0].reasons[0]
    assert "CORE-M125" in report.rows[0].reasons[0]


OTHER = """
from core.api import ModelShape, ModelSpec

SPIRAL = ModelSpec(name="spiral", impl="spiral_mod:Model", api=2, summary="", band=1,
                   architectures=("LlamaForCausalLM",), shape="spiral_mod:shape")


def shape(config):
    return ModelShape(**{**config["shape"], "ropes": ()})
"""


def test_another_plugin_that_computes_it_is_taken(world):
    world.install("acme-spiral", {"core.models": {"spiral": "spiral_mod:SPIRAL"}}, {"spiral_mod": OTHER})
    assert run(world, rope_type="yarn", factor=2.0).config.plan.one("core.models").name == "llama"
    assert run(world, rope_type="foo").config.plan.one("core.models").name == "spiral"
