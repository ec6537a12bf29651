"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api import TaskSpec

POOL = TaskSpec(
    name="pool",
    impl="core_plugin_pool.engine:Pool",
    worker_impl="core_plugin_pool.worker:PoolWorker",
    front_impl="core_plugin_pool.front:pooling_model",
    choose="core_plugin_pool.choosing:choose",
    api=1,
    summary="Vectors, classes and scores of whole prompts, instead of text",
    settings=("runner", "convert", "pooling"),
    drives=("core.io_processors",),
)
