"""A hub on this machine, which the hub's client in this process asks."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from core_testing.tinyhub import TinyHub


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """A hub without repositories; `hub.cache` is the client's cache, `hub.home` where its login is stored."""
    from huggingface_hub import constants

    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    home = tmp_path / "hf"
    with TinyHub({}) as hub:
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)
        template = hub.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(home / "hub"))
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(home / "token"))
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        hub.home, hub.cache = home, home / "hub"
        yield hub
        _wait_for_fetches()


def _wait_for_fetches():
    """Wait for the threads of a fetch that failed: they go on with the files they had begun.

    One that outlives its hub cannot connect any more, upon which the hub's client closes the session that all share.
    """
    for thread in threading.enumerate():
        if thread.name.startswith("fetch-"):
            thread.join(30)
            assert not thread.is_alive(), f"{thread.name} goes on"


@pytest.fixture
def told():
    """Where a source tells its progress."""
    calls: list[tuple[int, int]] = []
    return SimpleNamespace(calls=calls, update=lambda done, total: calls.append((done, total)))
