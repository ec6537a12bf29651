from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from core_plugin_weight_disk.receiver import DiskReceiver
from core_plugin_weight_disk.sender import DiskSender
from safetensors.torch import save_file

from core.api import CheckpointError, EngineError

DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.uint8, torch.bool, torch.float8_e4m3fn]


def some_weights() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {f"layer.{i}.weight": torch.randn(3, 4 + i, generator=generator).to(d) for i, d in enumerate(DTYPES)}


def received(info: dict[str, Any]) -> dict[str, torch.Tensor]:
    receiver = DiskReceiver({})
    receiver.begin(info)
    tensors = {tensor.name: tensor.raw().clone() for tensor in receiver.stream()}
    receiver.end()
    return tensors


def refused(info: Any, match: str) -> None:
    receiver = DiskReceiver({})
    with pytest.raises(CheckpointError, match=match):
        receiver.begin(info)
    with pytest.raises(EngineError, match="CORE-E137"):
        receiver.stream()


@pytest.mark.parametrize("max_file_bytes", [1, 60, 2**30])
def test_what_was_sent_is_received(tmp_path: Path, max_file_bytes: int) -> None:
    weights = some_weights()
    path = DiskSender(tmp_path, max_file_bytes=max_file_bytes).send(weights.items(), "step-1")
    back = received({"path": str(path)})
    assert back.keys() == weights.keys()
    for name, tensor in weights.items():
        assert back[name].dtype == tensor.dtype
        assert torch.equal(back[name].view(torch.uint8), tensor.view(torch.uint8))


def test_the_manifest_names_shapes_and_dtypes(tmp_path: Path) -> None:
    path = DiskSender(tmp_path).send(some_weights().items(), "v1")
    manifest = DiskReceiver({}).begin({"path": str(path), "version": "v1"})
    assert manifest.version == "v1"
    assert manifest.tensors["layer.1.weight"] == ((3, 5), "bfloat16")
    for name, tensor in some_weights().items():
        shape, dtype = manifest.tensors[name]
        assert (shape, getattr(torch, dtype)) == (tuple(tensor.shape), tensor.dtype)


def test_tensors_convert_on_demand(tmp_path: Path) -> None:
    file = tmp_path / "one.safetensors"
    save_file({"w": torch.tensor([1.5, 2.5], dtype=torch.bfloat16)}, file)
    receiver = DiskReceiver({})
    receiver.begin({"path": str(file)})
    (tensor,) = receiver.stream()
    assert (tensor.name, tensor.shape, tensor.encoding) == ("w", (2,), "plain")
    assert torch.equal(tensor.dense(torch.float32), torch.tensor([1.5, 2.5]))


def test_the_default_version_follows_the_files(tmp_path: Path) -> None:
    file = tmp_path / "one.safetensors"
    save_file({"w": torch.zeros(2)}, file)
    os.utime(file, ns=(1, 1))
    receiver = DiskReceiver({})
    first = receiver.begin({"path": str(file)}).version
    assert receiver.begin({"path": str(tmp_path)}).version == first
    os.utime(file, ns=(2, 2))
    second = receiver.begin({"path": str(file)}).version
    save_file({"v": torch.zeros(2)}, file)
    os.utime(file, ns=(1, 1))
    assert len({first, second, receiver.begin({"path": str(file)}).version}) == 3


def test_an_update_ends_and_another_may_begin(tmp_path: Path) -> None:
    sender, receiver = DiskSender(tmp_path), DiskReceiver({})
    for version in ("a", "b"):
        path = sender.send([("w", torch.ones(2))], version)
        receiver.begin({"path": str(path)})
        assert [tensor.name for tensor in receiver.stream()] == ["w"]
        receiver.end()
        receiver.end()
        with pytest.raises(EngineError, match="CORE-E137"):
            receiver.stream()


@pytest.mark.parametrize(
    ("info", "match"),
    [
        ({}, "CORE-M151 .*path"),
        ({"path": 3}, "CORE-M151 .*path"),
        ({"path": "x", "version": 3}, "CORE-M151 .*version"),
        ({"path": "x", "url": "y"}, "CORE-M151 .*url"),
        ({"path": "/no/such/place"}, "CORE-M150 .*/no/such/place does not exist"),
    ],
)
def test_wrong_info_names_the_field(info: dict[str, Any], match: str) -> None:
    refused(info, match)


@pytest.mark.parametrize("name", ["model.bin", "model.PT", "model.pth", "model.ckpt", "model.pkl"])
def test_pickled_files_are_refused_unread(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"\x80\x04.")
    refused({"path": str(tmp_path / name)}, f"CORE-M150 .*{name} is a pickled checkpoint")
    refused({"path": str(tmp_path)}, f"CORE-M150 .*{name} is a pickled checkpoint")


@pytest.mark.parametrize("data", [b"", b"\x80\x04K\x01.", b"\xff" * 8 + b"{}", b"\x02" + bytes(7) + b"{}trailing"])
def test_damaged_files_are_named(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "bad.safetensors").write_bytes(data)
    refused({"path": str(tmp_path)}, r"CORE-M150 .*bad\.safetensors")


def test_a_truncated_file_is_named(tmp_path: Path) -> None:
    path = DiskSender(tmp_path).send([("w", torch.zeros(64))], "v")
    (file,) = path.iterdir()
    file.write_bytes(file.read_bytes()[:-1])
    refused({"path": str(path)}, f"CORE-M150 .*{file.name}")


def test_an_empty_directory_and_doubled_names_are_refused(tmp_path: Path) -> None:
    refused({"path": str(tmp_path)}, "CORE-M150 .*no .safetensors file")
    for name in ("a", "b"):
        save_file({"w": torch.zeros(1)}, tmp_path / f"{name}.safetensors")
    refused({"path": str(tmp_path)}, "CORE-M151 .*same name")


def test_tied_and_strided_tensors_can_be_sent(tmp_path: Path) -> None:
    base = torch.arange(6.0).reshape(2, 3)
    path = DiskSender(tmp_path).send([("a", base), ("b", base), ("c", base.T)], "v")
    back = received({"path": str(path)})
    assert torch.equal(back["a"], base) and torch.equal(back["b"], base) and torch.equal(back["c"], base.T)


def test_a_version_appears_complete_or_not_at_all(tmp_path: Path) -> None:
    def broken() -> Any:
        yield "a", torch.zeros(4)
        assert not (tmp_path / "v").exists()
        raise RuntimeError("the trainer failed")

    with pytest.raises(RuntimeError, match="trainer"):
        DiskSender(tmp_path, max_file_bytes=1).send(broken(), "v")
    assert list(tmp_path.iterdir()) == []


def test_versions_are_sent_once_and_have_plain_names(tmp_path: Path) -> None:
    sender = DiskSender(tmp_path / "new")
    sender.send([("w", torch.zeros(1))], "v1.0")
    with pytest.raises(FileExistsError):
        sender.send([("w", torch.zeros(1))], "v1.0")
    for version in ("", "../v", ".hidden", "a/b"):
        with pytest.raises(ValueError, match="version"):
            sender.send([("w", torch.zeros(1))], version)


def test_the_sender_needs_nothing_of_the_engine() -> None:
    code = "import sys; sys.modules['core'] = None; import core_plugin_weight_disk.sender"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
