"""Trainer side: leaves checkpoints where engines can read them. Needs torch and safetensors, nothing of core."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from safetensors.torch import save_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from torch import Tensor

_VERSION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")


class DiskSender:
    """Writes versions of a model's weights under `path`, each in a directory that appears complete or not at all.

    Args:
        path: Directory that trainer and engine share; made when missing.
        max_file_bytes: A version is split into files of about this size, so that only one is in memory at a time.
    """

    def __init__(self, path: str | Path, *, max_file_bytes: int = 2**30) -> None:
        self._root = Path(path)
        self._max_file_bytes = max_file_bytes

    def send(self, named_tensors: Iterable[tuple[str, Tensor]], version: str) -> Path:
        """Write the tensors and return the new directory: the `path` of an update, with `version`.

        Raises:
            ValueError: `version` cannot be a directory name.
            FileExistsError: This version was sent before.
        """
        if not _VERSION.fullmatch(version):
            raise ValueError(f"version {version!r} must consist of letters, digits, '.', '_' and '-'")
        self._root.mkdir(parents=True, exist_ok=True)
        target = self._root / version
        if target.exists():
            raise FileExistsError(f"version {version!r} is already at {target}")
        work = Path(tempfile.mkdtemp(prefix=".sending-", dir=self._root))
        try:
            for number, shard in enumerate(_shards(named_tensors, self._max_file_bytes)):
                save_file(shard, work / f"model-{number:05}.safetensors", metadata={"format": "pt", "version": version})
            work.chmod(0o755)  # mkdtemp's 0700 would lock out an engine of another user
            os.rename(work, target)
        except BaseException:
            shutil.rmtree(work, ignore_errors=True)
            raise
        return target


def _shards(named_tensors: Iterable[tuple[str, Tensor]], limit: int) -> Iterator[dict[str, Tensor]]:
    """Group tensors, in host memory and each with storage of its own, into dicts of about `limit` bytes."""
    shard: dict[str, Tensor] = {}
    size = 0
    for name, tensor in named_tensors:
        # The copy also separates tied tensors, which the format refuses.
        shard[name] = tensor.detach().to("cpu", copy=True).contiguous()
        size += shard[name].nbytes
        if size >= limit:
            yield shard
            shard, size = {}, 0
    if shard:
        yield shard
