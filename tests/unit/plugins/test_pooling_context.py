"""How long the prompts of a model that pools may be by default."""

from __future__ import annotations

import pytest
from core_plugin_pool.choosing import MOST_TOKENS, choose

from core.api import CheckpointInfo, ModelShape, TaskFacts
from core.api.shapes import PoolingShape
from core.selection.context import context_of


@pytest.mark.parametrize(
    ("positions", "said", "wanted", "context"),
    [
        (512, None, None, 512),
        (512, 128, None, 128),
        (512, 4096, None, 512),
        (2**24, None, None, MOST_TOKENS),  # a table of its positions would take gigabytes
        (2**24, 2**23, None, MOST_TOKENS),
        (2**24, None, 2**20, 2**20),  # whoever wants it says so
    ],
)
def test_the_longest_prompt(positions, said, wanted, context):
    pooling = PoolingShape(method="mean", bidirectional=True)
    shape = ModelShape(
        vocab_size=8,
        max_positions=positions,
        num_layers=1,
        hidden_size=8,
        num_heads=1,
        num_kv_heads=1,
        head_dim=8,
        pooling=pooling,
    )
    made = {} if said is None else {"max_length": said}
    checkpoint = CheckpointInfo(path="/nowhere", format="fake", architecture="Fake", config={}, pooling=made)
    task = choose(TaskFacts(checkpoint, shape, {"runner": "auto", "convert": "auto", "pooling": "auto"}))
    assert context_of(wanted, task.context, shape) == (context, [])
