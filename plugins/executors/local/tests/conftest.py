from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from core.api import CheckpointInfo, ModelFiles, ModelShape
from core.config.resolved import EngineConfig, Options, RuntimeOptions
from core.plugins.plan import PlannedPlugin, PluginPlan

ConfigMaker = Callable[..., EngineConfig]


@pytest.fixture
def make_config(monkeypatch: pytest.MonkeyPatch) -> Iterator[ConfigMaker]:
    """Configurations whose executor uses the worker of `fake_executor_worker.py`, here and in child processes."""
    here = str(Path(__file__).parent)
    monkeypatch.syspath_prepend(here)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")])))

    def make(mode: str = "", start_timeout: float = 60.0, close_timeout: float = 5.0) -> EngineConfig:
        options: dict[str, Any] = {"worker": "fake_executor_worker:make", "close_timeout": close_timeout}
        driver = PlannedPlugin(
            group="core.executors", name="x", value="x", dist="x", version="0", api=1, options=options
        )
        shape = ModelShape(
            vocab_size=8, max_positions=8, num_layers=1, hidden_size=8, num_heads=1, num_kv_heads=1, head_dim=8
        )
        return EngineConfig(
            options=Options(runtime=RuntimeOptions(start_timeout=start_timeout)),
            files=ModelFiles(reference="tiny", path="/nowhere", name="tiny"),
            checkpoint=CheckpointInfo(path="/nowhere", format="fake", architecture="Fake", config={"mode": mode}),
            shape=shape,
            plan=PluginPlan(drivers=(driver,)),
            dtype="float32",
            kv_dtype="float32",
            max_model_len=8,
            block_size=4,
        )

    yield make
