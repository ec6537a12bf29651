"""References: paths of this machine and ids of the hub."""

from __future__ import annotations

import json

import pytest
from core_plugin_huggingface.hub import HubSource
from core_plugin_huggingface.local import LocalSource

from core.api import CheckpointError

LOCAL, HUB = LocalSource(), HubSource()


@pytest.fixture
def model(tmp_path):
    directory = tmp_path / "models" / "small-1.5"
    directory.mkdir(parents=True)
    (directory / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"]}))
    return directory


def test_a_directory_is_named_after_itself(model):
    files = LOCAL.resolve(str(model))
    assert (files.path, files.name, files.reference) == (str(model), "small-1.5", str(model))


def test_home_and_relative_paths_are_expanded(model, monkeypatch):
    monkeypatch.setenv("HOME", str(model.parent.parent))
    assert LOCAL.resolve("~/models/small-1.5").path == str(model)
    monkeypatch.chdir(model)
    assert LOCAL.resolve(".").name == "small-1.5"
    monkeypatch.chdir(model.parent.parent)
    assert LOCAL.resolve("models/small-1.5").path == str(model)


def test_a_file_is_named_without_its_ending(model):
    file = model / "weights-Q4_1.gguf"
    file.touch()
    files = LOCAL.resolve(str(file))
    assert (files.path, files.name) == (str(file), "weights-Q4_1")


def test_a_directory_without_config_needs_a_plain_path(tmp_path, monkeypatch):
    """`org/name` that happens to be a directory is still the hub's, unless it holds a model."""
    (tmp_path / "org" / "name").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert LOCAL.resolve("org/name") is None
    assert LOCAL.resolve("./org/name").path == str(tmp_path / "org" / "name")


@pytest.mark.parametrize("reference", ["./nowhere", "/no/where", "~/nowhere", "a/b/c", "model.gguf", "dir/"])
def test_a_path_to_nothing_is_an_error(reference):
    with pytest.raises(CheckpointError, match="CORE-M104") as caught:
        LOCAL.resolve(reference)
    assert reference in str(caught.value)


@pytest.mark.parametrize(
    "reference", [None, "", "org/name", "smollm2", "org/name-1.5B", "org/name:a.gguf", "hf:org/name:Q4_K_M", "hf:name"]
)
def test_other_references_are_not_local(reference):
    assert LOCAL.resolve(reference) is None


@pytest.mark.parametrize("reference", [None, "", "smollm2", "a/b/c", "./a", "/a", "a/..", "a b/c"])
def test_other_references_are_not_the_hubs(reference):
    assert HUB.resolve(reference) is None


@pytest.fixture
def offline_cache(monkeypatch, tmp_path):
    """A hub cache in a directory of its own, with no way out of the machine."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return tmp_path


def test_the_cache_is_used_offline(offline_cache):
    repository = offline_cache / "models--org--name"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("c0ffee")
    snapshot = repository / "snapshots" / "c0ffee"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    (snapshot / "model.safetensors").touch()
    files = HUB.resolve("org/name")
    assert (files.path, files.revision) == (str(snapshot), "c0ffee")


def test_offline_without_a_cache_is_an_error(offline_cache):
    with pytest.raises(CheckpointError, match=r"CORE-M170 .*org/name"):
        HUB.resolve("org/name")
