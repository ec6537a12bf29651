"""The bytes that the operating system is asked to read ahead."""

from __future__ import annotations

import os

import pytest

from core.engine import readahead


@pytest.fixture
def asked(monkeypatch):
    """What is asked for: (offset, bytes) in order."""
    seen = []
    monkeypatch.setattr(os, "posix_fadvise", lambda file, offset, count, advice: seen.append((offset, count)))
    monkeypatch.setattr(readahead, "STEP", 10)
    return seen


def _run(path):
    thread = readahead.read_ahead(path)
    assert thread is not None
    thread.join(10)


def test_a_file_is_asked_for_once_and_whole(asked, tmp_path):
    file = tmp_path / "model.gguf"
    file.write_bytes(bytes(25))
    _run(file)
    assert asked == [(0, 10), (10, 10), (20, 5)]


def test_of_a_directory_only_the_weights(asked, tmp_path):
    for name, size in (("b.safetensors", 3), ("a.safetensors", 4), ("tokenizer.json", 9), ("pytorch_model.bin", 9)):
        (tmp_path / name).write_bytes(bytes(size))
    _run(tmp_path)
    assert asked == [(0, 4), (0, 3)]


def test_no_more_than_the_bound(asked, tmp_path, monkeypatch):
    monkeypatch.setattr(readahead, "MOST", 15)
    for name in ("a.safetensors", "b.safetensors", "c.safetensors"):
        (tmp_path / name).write_bytes(bytes(12))
    _run(tmp_path)
    assert sum(count for _, count in asked) == 15


def test_a_file_that_is_gone_is_left_to_its_reader(asked, tmp_path):
    _run(tmp_path / "gone.gguf")
    assert asked == []


def test_systems_without_the_call_do_without(monkeypatch, tmp_path):
    monkeypatch.delattr(os, "posix_fadvise")
    assert readahead.read_ahead(tmp_path) is None
