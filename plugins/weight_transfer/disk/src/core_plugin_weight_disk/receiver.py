"""Engine side: an update read from files."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.api import CheckpointError, EngineError, WeightManifest
from core_plugin_weight_disk.tensors import FileTensor, find_files, fingerprint, open_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from core.api import WeightTensor

_FIELDS = {"path", "version"}


class DiskReceiver:
    """Reads an update from a safetensors file, or from a directory with several. Only headers are read by `begin`."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._files = ExitStack()
        self._tensors: list[FileTensor] | None = None

    def begin(self, info: Mapping[str, Any]) -> WeightManifest:
        """Open an update.

        Args:
            info: `path`, a file or directory; `version`, optional: the default is a hash that changes with the files.

        Raises:
            CheckpointError: A file cannot be used (code `CORE-M150`) or `info` is wrong (code `CORE-M151`).
        """
        self.end()
        path, version = _read_info(info)
        try:
            files = find_files(path)
            self._tensors = [
                FileTensor(handle, name)
                for handle in [self._files.enter_context(open_file(file)) for file in files]
                for name in handle.keys()  # noqa: SIM118 - a file handle is not a mapping
            ]
            tensors = {tensor.name: (tensor.shape, tensor.dtype) for tensor in self._tensors}
            if len(tensors) != len(self._tensors):
                raise CheckpointError("CORE-M151", f"{path}: two of its files hold a tensor of the same name.")
            return WeightManifest(version=version or fingerprint(files), tensors=tensors)
        except BaseException:
            self.end()
            raise

    def stream(self) -> Iterator[WeightTensor]:
        """Yield every tensor once, in file order. Raises `EngineError` (code `CORE-E137`) when no update is open."""
        if self._tensors is None:
            raise EngineError("CORE-E137", "The disk transport has no open weight update: begin comes first.")
        return iter(self._tensors)

    def end(self) -> None:
        """Close the files. Harmless when none is open."""
        self._tensors = None
        self._files.close()


def _read_info(info: Mapping[str, Any]) -> tuple[Path, str | None]:
    if unknown := sorted(map(str, set(info) - _FIELDS)):
        raise CheckpointError("CORE-M151", f"The weight update has unknown fields: {', '.join(unknown)}.")
    path, version = info.get("path"), info.get("version")
    if not isinstance(path, str) or not path:
        raise CheckpointError("CORE-M151", "The weight update's field `path` must name a file or a directory.")
    if version is not None and not isinstance(version, str):
        raise CheckpointError("CORE-M151", f"The weight update's field `version` must be a text, got {version!r}.")
    return Path(path), version
