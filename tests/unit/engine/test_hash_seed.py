"""Block hashes that are equal in every start: what they depend on, and what they do not."""

from __future__ import annotations

import dataclasses
import importlib
import os
import sys

import numpy as np
import pytest

from core.api import hooks as hook_specifications
from core.api.shapes import ModelShape
from core.api.weights import CheckpointInfo, ModelFiles
from core.config.fields import SECRETS
from core.config.resolved import EngineConfig, Options
from core.engine.block_content import CONTENT_HOOKS, CONTENT_KINDS, BlockContent
from core.engine.hashing import BlockHasher, stable_key
from core.options.engine import KVOptions
from core.plugins.entry import Entry
from core.plugins.hooks import Hooks
from core.plugins.kinds import HOOKS_GROUP, KINDS
from core.plugins.plan import PlannedFile, PlannedPlugin, PluginPlan

SHAPE = {
    "vocab_size": 8,
    "max_positions": 64,
    "num_layers": 1,
    "hidden_size": 8,
    "num_heads": 1,
    "num_kv_heads": 1,
    "head_dim": 8,
}
HOOK = "from core.api import hookimpl\n\n\n@hookimpl\ndef {name}({arguments}):\n    return None\n"


def plugin(group="core.attention_backends", name="a", dist="acme", **changes):
    return PlannedPlugin(**{"value": "m:A", "version": "1", "api": 1, **changes}, group=group, name=name, dist=dist)


@pytest.fixture
def code(tmp_path, monkeypatch):
    """The package of distribution `acme`; `hooks()` loads its hook module."""
    package, info = tmp_path / "site" / "acme", tmp_path / "site" / "acme-1.dist-info"
    package.mkdir(parents=True)
    info.mkdir()
    (package / "__init__.py").write_text("")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[core.plugins]\nacme = acme.hooks\n")
    monkeypatch.syspath_prepend(tmp_path / "site")
    importlib.invalidate_caches()
    yield package
    for name in [name for name in sys.modules if name.partition(".")[0] == "acme"]:
        del sys.modules[name]


@pytest.fixture
def make(tmp_path, code):
    (tmp_path / "model.bin").write_bytes(b"weights")

    def make(seed="quiet", shape=(), **changes):
        path = str(tmp_path / "model.bin")
        fields = {
            "options": Options(kv=KVOptions(hash_seed=seed)),
            "files": ModelFiles(reference="m", path=path, name="m"),
            "checkpoint": CheckpointInfo(path=path, format="f", architecture="A", config={"a": 1}),
            "plan": PluginPlan(drivers=(plugin(),)),
            "shape": ModelShape(**{**SHAPE, **dict(shape)}),
            "dtype": "float32",
            "kv_dtype": "float32",
            "block_size": 4,
            "max_model_len": 64,
        }
        return EngineConfig(**{**fields, **changes})

    return make


def key(config, hooks=()):
    return stable_key(config, Hooks(hooks))


def hashes(key, **own):
    hasher, found = BlockHasher(4, key), []
    hasher.extend(found, hasher.root(**own), np.arange(12, dtype=np.int32))
    return found


def test_the_same_seed_gives_the_same_hashes_in_every_start(make):
    assert hashes(key(make())) == hashes(key(make()))


def test_without_a_seed_hashes_are_random(make):
    assert key(make(seed=None)) is None
    assert hashes(None) != hashes(None)


def test_what_is_the_requests_own_parts_its_blocks_from_others():
    mine = hashes(b"k", salt="a")
    assert mine == hashes(b"k", salt="a", adapter=None)
    others = [hashes(b"k"), hashes(b"k", salt=""), hashes(b"k", adapter="a"), hashes(b"k", salt="a", adapter="a")]
    assert all(not set(mine) & set(found) for found in others)


FACTS = {"path": "p", "format": "f", "architecture": "A", "config": {"a": 1}}
CHANGES = {
    "seed": {"seed": "other"},
    "no words": {"seed": ""},
    "checkpoint": {"checkpoint": CheckpointInfo(**{**FACTS, "config": {"a": 2}})},
    "quantization": {"checkpoint": CheckpointInfo(**FACTS, quantization_config={"bits": 4})},
    "files": {"files": ModelFiles(reference="m", path=__file__, name="m")},
    "revision": {"files": ModelFiles(reference="m", path="", name="m", revision="two")},
    "dtype": {"dtype": "bfloat16"},
    "kv_dtype": {"kv_dtype": "bfloat16"},
    "block_size": {"block_size": 8},
    **{
        f"plan: {kind.label}": {"plan": PluginPlan(drivers=(plugin(), plugin(kind.group, "b")))}
        for kind in CONTENT_KINDS
    },
    "plan: name": {"plan": PluginPlan(drivers=(plugin(name="b"),))},
    "plan: version": {"plan": PluginPlan(drivers=(plugin(version="2"),))},
    "plan: options": {"plan": PluginPlan(drivers=(plugin(options={"bits": 4}),))},
    "plan: files": {"plan": PluginPlan(drivers=(plugin(),), files=(PlannedFile(path="/p.py", sha256="0"),))},
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
def test_everything_that_decides_a_blocks_content_changes_the_key(change, make, tmp_path):
    if (files := change.get("files")) and not files.path:
        change = {"files": files.model_copy(update={"path": str(tmp_path / "model.bin")})}
    assert key(make(**change)) != key(make())


UNCHANGED = {
    "a name": lambda make: make(files=make().files.model_copy(update={"name": "n", "reference": "r"})),
    "step_tokens": lambda make: make(step_tokens=7),
    "shortens": lambda make: make(shortens=True),
    "environment": lambda make: make(environment={"A": "b"}),
    "max_model_len": lambda make: make(max_model_len=32),
    "shape": lambda make: make(shape={"vocab_size": 9}),
    **{
        f"plan: {kind.label}": lambda make, group=group: make(
            plan=PluginPlan(drivers=(plugin(), plugin(group, "b", "no-such")))
        )
        for group, kind in KINDS.items()
        if kind not in CONTENT_KINDS and group != HOOKS_GROUP
    },
}


@pytest.mark.parametrize("same", UNCHANGED.values(), ids=list(UNCHANGED))
def test_what_decides_no_content_leaves_the_key(same, make):
    assert key(same(make)) == key(make())


def test_the_context_counts_where_rotary_embeddings_depend_on_it(make, monkeypatch):
    monkeypatch.setattr(ModelShape, "context_bound", property(lambda self: True))
    assert key(make(max_model_len=32)) != key(make())


def test_new_weights_in_the_same_file_change_the_key(make, tmp_path):
    before = key(make())
    os.utime(tmp_path / "model.bin", ns=(1, 1))
    assert key(make()) != before


@pytest.mark.parametrize("name", ["__init__.py", "table.bin", "part/more.py"])
def test_code_that_changes_under_the_same_version_changes_the_key(name, make, code):
    (code / name).parent.mkdir(exist_ok=True)
    (code / name).write_bytes(b"x = 1\n")
    before = key(make())
    (code / name).write_bytes(b"x = 2\n")
    assert key(make()) != before


@pytest.mark.parametrize("hook", [name for name in vars(hook_specifications) if name.startswith("core_")])
def test_a_hook_module_changes_the_key_if_it_can_change_what_layers_compute(hook, make, code):
    arguments = {"core_layer": "site, layer", "core_model_loaded": "model, info"}.get(hook, "")
    (code / "hooks.py").write_text(HOOK.format(name=hook, arguments=arguments))
    entry = Entry(HOOKS_GROUP, "acme", "acme", "1", "acme.hooks")
    hooked = make(plan=PluginPlan(drivers=(plugin(),), hooks=(plugin(HOOKS_GROUP, "acme"),)))
    found = key(hooked, [entry])
    assert (found != key(make())) is (hook in CONTENT_HOOKS)
    if hook in CONTENT_HOOKS:
        newer = make(plan=PluginPlan(drivers=(plugin(),), hooks=(plugin(HOOKS_GROUP, "acme", version="2"),)))
        assert key(newer, [entry]) != found


def test_an_update_of_the_weights_changes_every_hash():
    def updated(*versions):
        hasher, found = BlockHasher(4, b"k" * 16), []
        for version in versions:
            hasher.update(version, {"path": "p"})
        hasher.extend(found, hasher.root(), np.arange(12, dtype=np.int32))
        return found

    chains = [updated(), updated("one"), updated("two"), updated("one", "one"), updated("one", "two")]
    assert len({digest for chain in chains for digest in chain}) == 3 * len(chains)
    assert updated("one", "two") == chains[-1]  # another engine that went through the same updates


def test_the_seed_is_a_secret():
    assert "kv.hash_seed" in SECRETS


# Every field of the configuration: the field of `BlockContent` that carries it, or nothing if keys and values are the
# same whatever it is. How a step is cut or spread over threads changes their rounding only.
CARRIED = {
    "files": "files revision",
    "checkpoint": "checkpoint",
    "shape": "checkpoint context",
    "plan": "plugins plugin_files",
    "dtype": "dtype",
    "kv_dtype": "kv_dtype",
    "max_model_len": "context",
    "block_size": "block_size",
    "options.model.model": "files checkpoint",
    "options.model.revision": "files revision",
    "options.model.dtype": "dtype",
    "options.model.max_model_len": "context",
    "options.model.hf_overrides": "checkpoint",
    "options.model.rope_scaling": "checkpoint",
    "options.kv.block_size": "block_size",
    "options.kv.kv_dtype": "kv_dtype",
    "options.kv.hash_seed": "the key itself",
    "options.runtime.plugin_options": "plugins",
    "options.runtime.compile": "plugins",  # the options that it gives a hook plugin
    "options.select.disable_plugin": "plugins",
    "options.select.plugins": "plugins",
    "options.select.plugin_file": "plugin_files",
    **{f"options.select.{option}": "plugins" for kind in CONTENT_KINDS for option in kind.options},
}
NO_CONTENT = {
    "step_tokens",
    "shortens",
    "environment",
    "probe",  # which of the plan's kernels take a layer: their values are the same within rounding
    "task",
    "task_data",
    "decodes",
    "options.model.served_model_name",
    "options.model.chat_template",
    "options.model.chat_template_content_format",
    "options.model.default_chat_template_kwargs",
    "options.model.max_chars_per_token",
    "options.model.seed",
    "options.model.runner",
    "options.model.convert",
    "options.model.pooling",
    "options.kv.kv_memory",
    "device_index",
    "options.kv.memory_fraction",
    "options.kv.num_blocks",
    "options.kv.prefix_caching",
    "options.kv.state_interval",
    "options.kv.state_snapshots",
    "options.runtime.graphs",
    "options.runtime.threads",
    "options.runtime.threads_bind",
    "options.runtime.start_timeout",
    "options.runtime.engine_restarts",
    "options.runtime.engine_hang_timeout",
    "options.select.plugins_lock",
    "options.select.strict",
    *(f"options.select.{option}" for kind in KINDS.values() if kind not in CONTENT_KINDS for option in kind.options),
    # Whole sections: how steps are filled, how grammars are read, and everything before and behind the engine.
    "options.scheduler",
    "options.hub",
    "options.server",
}


def test_every_field_of_the_configuration_is_carried_or_decides_no_content():
    fields = {name for name in EngineConfig.model_fields if name != "options"}
    for section, field in Options.model_fields.items():
        whole = f"options.{section}"
        fields |= {whole} if whole in NO_CONTENT else {f"{whole}.{name}" for name in field.annotation.model_fields}
    assert fields == set(CARRIED) | NO_CONTENT and not set(CARRIED) & NO_CONTENT
    carriers = {name for names in CARRIED.values() if " itself" not in names for name in names.split()}
    assert carriers == {field.name for field in dataclasses.fields(BlockContent)} - {"core", "groups"}
