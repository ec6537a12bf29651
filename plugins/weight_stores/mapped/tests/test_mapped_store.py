"""The folder of packed weights: damaged, cut short, foreign, too many, two writers, a writer that was killed."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
from hashlib import sha256

import pytest
import torch
from core_plugin_mapped_weights import folder, writing
from core_plugin_mapped_weights.store import MappedStore
from safetensors import safe_open

A, B, C = (sha256(name.encode()).hexdigest() for name in "abc")
TENSORS = {"0:a:weight": torch.arange(1000, dtype=torch.int32), "0:a:bias": torch.ones(3, 5).to(torch.bfloat16)}
ABOUT = {"model": "acme/tiny"}

WRITER = """
import sys, time
import torch
from core_plugin_mapped_weights.store import MappedStore

def wanted():
    print("writing", flush=True)
    time.sleep(60)
    return True

MappedStore({"folder": sys.argv[1]}).keep(sys.argv[2], {"a": torch.ones(5)}, {"model": "m"}, wanted)
"""


@pytest.fixture
def store(tmp_path):
    return MappedStore({"folder": str(tmp_path), "max_bytes": 2**20})


def keep(store, key=A, tensors=None):
    return store.keep(key, TENSORS if tensors is None else tensors, ABOUT, lambda: True)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_the_file_is_safetensors(store, tmp_path):
    assert keep(store)
    assert names(tmp_path) == [f"{A}.safetensors"]
    with safe_open(tmp_path / f"{A}.safetensors", "pt") as file:
        assert file.metadata()["model"] == "acme/tiny"
        for name, tensor in TENSORS.items():
            assert torch.equal(file.get_tensor(f"t.{name}"), tensor)
    assert (tmp_path / f"{A}.safetensors").stat().st_mode & 0o777 == 0o600


def changed(data, at, value=None):
    data[at] = data[at] ^ 1 if value is None else value


DAMAGES = {
    "cut short": lambda data: data.__delitem__(slice(-64, None)),
    "cut in the header": lambda data: data.__delitem__(slice(100, None)),
    "longer": lambda data: data.extend(bytes(64)),
    "empty": lambda data: data.clear(),
    "header": lambda data: changed(data, data.index(b"acme")),
    "shape": lambda data: data.__setitem__(slice(*span(data, b"[1000]")), b"[9999]"),
    "length": lambda data: changed(data, 7, 255),
    "end": lambda data: changed(data, -60),
    "foreign": lambda data: data.__setitem__(slice(None), foreign()),
    "zeros": lambda data: data.__setitem__(slice(None), bytes(len(data))),
}


def span(data, text):
    at = data.index(text)
    return at, at + len(text)


def foreign():
    """Another safetensors file."""
    header = json.dumps({"x": {"dtype": "U8", "shape": [64], "data_offsets": [0, 64]}}).encode()
    return len(header).to_bytes(8, "little") + header + bytes(64)


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_damaged_is_removed_with_one_warning(store, tmp_path, caplog, damage):
    keep(store)
    file = tmp_path / f"{A}.safetensors"
    data = bytearray(file.read_bytes())
    DAMAGES[damage](data)
    file.write_bytes(data)
    assert store.open(A) is None
    assert [record.message.split()[0] for record in caplog.records] == ["CORE-M222"] and str(file) in caplog.text
    assert names(tmp_path) == []
    caplog.clear()
    assert keep(store) and store.open(A).keys() == TENSORS.keys() and not caplog.records


@pytest.mark.parametrize("kind", ["link", "folder", "writable", "name"])
def test_what_is_not_ours_is_not_mapped(store, tmp_path, caplog, kind):
    keep(store, B)
    file, other = tmp_path / f"{A}.safetensors", tmp_path / f"{B}.safetensors"
    if kind == "link":
        file.symlink_to(other)
    elif kind == "folder":
        file.mkdir()
    else:
        other.rename(file)
        file.chmod(0o666 if kind == "writable" else 0o600)
    assert store.open(A) is None
    assert "CORE-M222" in caplog.text
    assert other.exists() == (kind in ("link", "folder"))


def test_keys_are_no_paths(store):
    for wrong in ("../a", "", "A" * 64, A + "/"):
        with pytest.raises(ValueError, match="no key"):
            store.open(wrong)


def test_the_least_recently_used_goes(tmp_path):
    store = MappedStore({"folder": str(tmp_path), "max_bytes": 25_000})
    for age, key in enumerate((A, B)):
        keep(store, key, {"w": torch.zeros(10_000, dtype=torch.uint8)})
        os.utime(tmp_path / f"{key}.safetensors", (1000 + age, 1000 + age))
    assert store.open(A) is not None  # used just now
    assert keep(store, C, {"w": torch.zeros(10_000, dtype=torch.uint8)})
    assert {one.key for one in store.entries()} == {A, C}


def test_what_does_not_fit_is_not_kept_and_moves_nothing(tmp_path, caplog):
    store = MappedStore({"folder": str(tmp_path), "max_bytes": "8KB"})
    keep(store)
    assert not keep(store, B, {"w": torch.zeros(10_000, dtype=torch.uint8)})
    assert caplog.text.count("CORE-M223") == 1 and "8000 are allowed" in caplog.text
    assert names(tmp_path) == [f"{A}.safetensors"]


def test_a_full_disk_leaves_nothing(store, tmp_path, monkeypatch, caplog):
    def full(file, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(writing.os, "write", full)
    assert not keep(store)
    assert "No space left on device" in caplog.text and names(tmp_path) == []


@pytest.mark.parametrize("place", ["below a file", "for everybody"])
def test_a_folder_that_cannot_be_used_is_told(tmp_path, caplog, place):
    path = tmp_path / "folder"
    if place == "below a file":
        path.write_text("")
        path /= "store"
    else:
        path.mkdir()
        path.chmod(0o777)
    store = MappedStore({"folder": str(path)})
    assert not keep(store) and store.open(A) is None and list(store.entries()) == []
    assert caplog.text.count("CORE-M223") == 1 and "mapped.folder" in caplog.text


def test_a_folder_that_is_read_only_is_told(store, tmp_path, monkeypatch, caplog):
    def refused(*arguments, **named):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(folder.os, "open", refused)  # root is refused nothing
    assert not keep(store) and names(tmp_path) == []
    assert caplog.text.count("CORE-M223") == 1 and "Permission denied" in caplog.text


def test_of_two_writers_the_first_wins(store, tmp_path):
    """In this process; a lock is of an open file, so that processes are kept apart in the same way."""
    begun, go = threading.Event(), threading.Event()

    def wanted():
        begun.set()
        return go.wait(20)

    found = []
    first = threading.Thread(target=lambda: found.append(store.keep(A, TENSORS, ABOUT, wanted)))
    first.start()
    assert begun.wait(20)
    assert keep(store, A, {"other": torch.ones(3)}) is False
    assert keep(store, B) and f"{A}.part" in names(tmp_path)  # a file that is being written is not what was left
    go.set()
    first.join()
    assert found == [True]
    assert store.open(A).keys() == TENSORS.keys()


def test_a_killed_writer_leaves_what_the_next_one_removes(store, tmp_path):
    command = [sys.executable, "-c", WRITER, str(tmp_path), A]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout.readline() == "writing\n"
        assert keep(store, A, {"other": torch.ones(3)}) is False
        writer.send_signal(signal.SIGKILL)
    assert names(tmp_path) == [f"{A}.part"] and store.open(A) is None
    assert keep(store, B)
    assert names(tmp_path) == [f"{B}.safetensors"]
    assert keep(store) and store.open(A).keys() == TENSORS.keys()


def test_entries_tell_what_cannot_be_read(store, tmp_path):
    keep(store)
    (tmp_path / f"{B}.safetensors").write_bytes(b"nonsense")
    (tmp_path / "notes.txt").write_text("mine")
    assert {one.key: one.model for one in store.entries()} == {A: "acme/tiny", B: "?"}
    assert store.remove(B) == 8 and store.remove(B) == 0
    assert names(tmp_path) == sorted([f"{A}.safetensors", "notes.txt"])


def test_unknown_dtypes_are_told(store, tmp_path, caplog):
    caplog.set_level(logging.WARNING)
    assert not keep(store, A, {"a": torch.ones(3, dtype=torch.complex64)})
    assert "complex64" in caplog.text and names(tmp_path) == []
