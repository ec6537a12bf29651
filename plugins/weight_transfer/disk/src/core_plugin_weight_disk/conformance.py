"""An update on disk for the conformance kit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from core_plugin_weight_disk.sender import DiskSender
from core_testing.conformance import TransferSample

if TYPE_CHECKING:
    from torch import Tensor


def samples() -> Iterator[TransferSample]:
    """Yield an update in one file, and one in a file per tensor."""
    missing = {"path": "/there/is/no/such/directory"}
    yield TransferSample("one file", send=lambda *update: _send(*update, max_file_bytes=2**30), missing=missing)
    yield TransferSample("many files", send=lambda *update: _send(*update, max_file_bytes=1), missing=missing)


def _send(folder: Path, tensors: Mapping[str, Tensor], version: str, *, max_file_bytes: int) -> Mapping[str, str]:
    path = DiskSender(folder, max_file_bytes=max_file_bytes).send(tensors.items(), version)
    return {"path": str(path), "version": version}
