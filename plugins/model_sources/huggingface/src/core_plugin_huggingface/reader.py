"""The reader of checkpoints in Hugging Face's layout. Importing it loads no torch; `tensors` does."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from core.api import CheckpointInfo
from core_plugin_huggingface.faults import bad_json
from core_plugin_huggingface.files import names_architecture, open_shards, read_generation, read_json, read_license
from core_plugin_huggingface.header import DTYPES
from core_plugin_huggingface.quantization import read_quantization
from core_plugin_huggingface.sentence import read_pooling
from core_tokenizers import missing_tokenizer, tokenizer_from_directory, tokenizer_remedy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from core.api import Tokenizer
    from core_plugin_huggingface.header import Entry
    from core_plugin_huggingface.tensors import SafeTensor

_STACKED = re.compile(r"\.experts\._?(gate_)?up_proj(_\w+)?$")
"""Names of tensors that hold what all experts of a layer read with, as transformers has it in memory: gate and up, or
up where there is no gate. The configuration says then `experts_fused`."""

_JOINED = {"qkv_fused": ("qkv_proj", "q_proj"), "gate_up_fused": ("gate_up_proj", "gate_proj")}
"""What the configuration says -> a module that a checkpoint has, and one that it has not."""


def _fused(names: Iterable[str]) -> dict[str, bool]:
    """Return what the names of tensors say of modules that hold the weights of several others."""
    listed = list(names)
    modules = {part for name in listed for part in name.split(".")[:-1]}
    found = {key: True for key, (there, apart) in _JOINED.items() if there in modules and apart not in modules}
    return found | ({"experts_fused": True} if any(map(_STACKED.search, listed)) else {})


class SafetensorsReader:
    """Reads a directory with `config.json` and safetensors files. Code that a checkpoint brings is never run."""

    FORMAT = "safetensors"

    def recognises(self, path: Path) -> bool:
        """Say whether `path` is such a directory; one that holds only another format's weights is not."""
        if not (path / "config.json").is_file():
            return False
        if any(path.glob("*.safetensors*")):
            return True
        return not any(path.glob("*.gguf")) and names_architecture(path / "config.json")

    def inspect(self, path: Path) -> CheckpointInfo:
        """Read the facts and check every weight file's header.

        Raises:
            CheckpointError: CORE-M131 a JSON file is wrong, or what `open_shards` and `read_pooling` raise.
        """
        config = read_json(path / "config.json")
        names = config.get("architectures")
        if not isinstance(names, list) or not names or not isinstance(names[0], str):
            raise bad_json(path / "config.json", "has no 'architectures', so nobody knows which model this is")
        quantization = read_quantization(path, config)
        entries = self._entries(path)
        config = {**config, **_fused(entry.name for entry in entries)}
        return CheckpointInfo(
            path=str(path),
            format=self.FORMAT,
            architecture=names[0],
            config=config,
            quantization=quantization.get("quant_method", "unknown") if quantization else "none",
            quantization_config=quantization,
            generation_config=read_generation(path, config),
            num_bytes=sum(entry.num_bytes for entry in entries),
            # The values of a quantized tensor are packed, several to an element.
            num_parameters=None if quantization else sum(math.prod(entry.shape) for entry in entries),
            tensors={entry.name: (entry.shape, DTYPES[entry.dtype]) for entry in entries},
            config_file=str(path / "config.json"),
            license=read_license(path),
            pooling=read_pooling(path),
            tokenizer_fault=missing_tokenizer(path),
            tokenizer_remedy=tokenizer_remedy(path),
            files=self._files(path),
        )

    @staticmethod
    def _entries(path: Path) -> list[Entry]:
        return [entry for shard in open_shards(path) for entry in shard.entries]

    @staticmethod
    def _files(path: Path) -> tuple[str, ...]:
        return tuple(str(shard.path) for shard in open_shards(path))

    def tokenizer(self, path: Path) -> Tokenizer:
        """Return the directory's tokenizer. Raises `CheckpointError` when its files are missing or wrong."""
        return tokenizer_from_directory(path)

    def tensors(self, path: Path, progress: Callable[[int], None]) -> Iterator[SafeTensor]:
        """Yield every tensor once, file by file in natural order, in each file by place."""
        from core_plugin_huggingface.tensors import read_tensors

        return read_tensors(open_shards(path), progress)


class DummyReader(SafetensorsReader):
    """Reads a directory's facts, whether it has weights or not: they are made up."""

    FORMAT = "dummy"

    def recognises(self, path: Path) -> bool:
        """Say whether `path` has a configuration in this layout."""
        return (path / "config.json").is_file() and names_architecture(path / "config.json")

    def tensors(self, path: Path, progress: Callable[[int], None]) -> Iterator[SafeTensor]:
        """Yield nothing."""
        return iter(())

    @staticmethod
    def _entries(path: Path) -> list[Entry]:
        return []

    @staticmethod
    def _files(path: Path) -> tuple[str, ...]:
        return ()
