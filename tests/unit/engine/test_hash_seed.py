"""Block hashes that are equal in every start: what the key of `kv.hash_seed` depends on."""

from __future__ import annotations

import os

import numpy as np
import pytest

from core.api.models import ModelShape
from core.api.weights import CheckpointInfo, ModelFiles
from core.config.fields import SECRETS
from core.config.resolved import EngineConfig, KVOptions, Options
from core.engine.hashing import BlockHasher, stable_key
from core.plugins.plan import PlannedPlugin, PluginPlan


@pytest.fixture
def make(tmp_path):
    (tmp_path / "model.bin").write_bytes(b"weights")

    def make(seed="quiet", attention="a", **changes):
        plugin = PlannedPlugin(
            group="core.attention_backends", name=attention, value="m:A", dist="d", version="1", api=1
        )
        shape = ModelShape(
            vocab_size=8, max_positions=64, num_layers=1, hidden_size=8, num_heads=1, num_kv_heads=1, head_dim=8
        )
        fields = {"dtype": "float32", "kv_dtype": "float32", "block_size": 4, **changes}
        return EngineConfig(
            options=Options(kv=KVOptions(hash_seed=seed)),
            files=ModelFiles(reference="m", path=str(tmp_path), name="m"),
            checkpoint=CheckpointInfo(path=str(tmp_path), format="f", architecture="A", config={"a": 1}),
            shape=shape,
            plan=PluginPlan(drivers=(plugin,)),
            max_model_len=64,
            **fields,
        )

    return make


def hashes(key):
    hasher, found = BlockHasher(4, key), []
    hasher.extend(found, hasher.root(None), np.arange(12, dtype=np.int32))
    return found


def test_the_same_seed_gives_the_same_hashes_in_every_start(make):
    assert hashes(stable_key(make())) == hashes(stable_key(make()))


def test_without_a_seed_hashes_are_random(make):
    assert stable_key(make(seed=None)) is None
    assert hashes(None) != hashes(None)


@pytest.mark.parametrize(
    "change", [{"seed": "other"}, {"seed": ""}, {"attention": "b"}, {"kv_dtype": "bfloat16"}, {"block_size": 8}]
)
def test_everything_that_decides_a_blocks_content_changes_the_key(change, make):
    assert stable_key(make(**change)) != stable_key(make())


def test_new_weights_in_the_same_file_change_the_key(make, tmp_path):
    before = stable_key(make())
    os.utime(tmp_path / "model.bin", ns=(1, 1))
    assert stable_key(make()) != before


def test_the_seed_is_a_secret():
    assert "kv.hash_seed" in SECRETS
