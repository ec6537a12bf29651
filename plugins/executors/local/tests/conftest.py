from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

SetupMaker = Callable[..., Any]


@pytest.fixture
def make_setup(monkeypatch: pytest.MonkeyPatch) -> SetupMaker:
    """What executors are made with; workers are those of `fake_executor_worker.py`, here and in child processes."""
    here = str(Path(__file__).parent)
    monkeypatch.syspath_prepend(here)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")])))

    def make(
        mode: str = "",
        start_timeout: float = 60.0,
        close_timeout: float = 5.0,
        on_progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> Any:
        from fake_executor_worker import FakeOpener

        options = {"close_timeout": close_timeout}
        return SimpleNamespace(
            options=options, opener=FakeOpener(mode), start_timeout=start_timeout, on_progress=on_progress
        )

    return make
