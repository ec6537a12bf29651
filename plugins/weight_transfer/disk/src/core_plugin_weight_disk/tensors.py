"""safetensors files as headers and lazy tensors."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open

from core.api import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Iterable

    import torch
    from torch import Tensor

_PICKLED = frozenset({".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle"})

_DTYPES = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "U16": "uint16",
    "I16": "int16",
    "U32": "uint32",
    "I32": "int32",
    "U64": "uint64",
    "I64": "int64",
    "F16": "float16",
    "BF16": "bfloat16",
    "F32": "float32",
    "F64": "float64",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu",
}
"""safetensors' names of dtypes and torch's."""


class FileTensor:
    """A tensor of an open safetensors file, read when its values are asked for. See `core.api.WeightTensor`."""

    encoding = "plain"

    def __init__(self, file: Any, name: str) -> None:
        part = file.get_slice(name)
        self._file = file
        self.name = name
        self.shape: tuple[int, ...] = tuple(part.get_shape())
        self.dtype = _DTYPES.get(part.get_dtype(), part.get_dtype())

    def dense(self, dtype: torch.dtype) -> Tensor:
        """Return the values in `dtype`."""
        return self.raw().to(dtype)

    def raw(self) -> Tensor:
        """Return the tensor as stored."""
        tensor: Tensor = self._file.get_tensor(self.name)
        return tensor


def find_files(path: Path) -> list[Path]:
    """Return the safetensors files at `path` (a file, or a directory that holds some), sorted by name.

    Raises:
        CheckpointError: There is none, or a pickled file instead: those can run code and are never read.
    """
    if not path.exists():
        raise _refuse(path, "does not exist")
    files = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
    for file in files or (sorted(path.iterdir()) if path.is_dir() else []):
        if file.suffix.lower() in _PICKLED:
            raise _refuse(file, "is a pickled checkpoint", "Save it as safetensors: pickled files can run code.")
    if not files:
        raise _refuse(path, "holds no .safetensors file")
    return files


def open_file(path: Path) -> Any:
    """Open a file, its header checked. Raises `CheckpointError` (code `CORE-M150`) naming it."""
    try:
        return safe_open(path, framework="pt")
    except (SafetensorError, OSError) as error:
        raise _refuse(path, f"is not a readable safetensors file: {error}") from error


def fingerprint(files: Iterable[Path]) -> str:
    """Return a short hash of the files' headers, sizes and modification times: another checkpoint, another hash."""
    digest = hashlib.sha256()
    for path in files:
        status = path.stat()
        digest.update(f"{path.name} {status.st_size} {status.st_mtime_ns}\n".encode())
        with path.open("rb") as file:
            digest.update(file.read(int.from_bytes(file.read(8), "little")))
    return digest.hexdigest()[:16]


def _refuse(path: Path, why: str, hint: str = "") -> CheckpointError:
    return CheckpointError("CORE-M150", f"The weight update cannot be read: {path} {why}.", hint=hint)
