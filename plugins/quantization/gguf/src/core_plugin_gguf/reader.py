"""The reader of GGUF checkpoints. Importing it loads no torch; `tensors` does."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from math import prod
from typing import TYPE_CHECKING

from core.api.errors import CheckpointError
from core.api.weights import CheckpointInfo
from core_plugin_gguf.config import architecture, eos_ids, generation_config, model_config, pooling, special_ids
from core_plugin_gguf.files import is_gguf, open_parts
from core_plugin_gguf.formats import DECODABLE, FLOATS, stored_as
from core_plugin_gguf.names import Conventions
from core_plugin_gguf.scalars import scalars
from core_tokenizers import fast_tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from core.api.tokenizer import Tokenizer
    from core.api.weights import WeightTensor
    from core_plugin_gguf.header import Header, TensorInfo
    from core_plugin_gguf.kinds import Kind
    from core_plugin_gguf.names import Place

_TEMPLATE = "tokenizer.chat_template"
_TOKENS = "tokenizer.ggml.tokens"


class GGUFReader:
    """Reads a `.gguf` file, the first of several split files, or a directory with exactly one checkpoint."""

    def recognises(self, path: Path) -> bool:
        """Say whether `path` is a GGUF checkpoint of a version that can be read."""
        return is_gguf(path)

    def inspect(self, path: Path) -> CheckpointInfo:
        """Read the facts.

        Raises:
            CheckpointError: `CORE-M140` model not supported, `CORE-M141` damaged file, `CORE-M142` unknown tensor type.
        """
        parts = open_parts(path)
        header = parts[0]
        tensors = [tensor for part in parts for tensor in part.tensors]
        config = model_config(header, tensors)
        conventions = _conventions(parts)
        places = [(place, tensor.kind) for tensor in tensors for place in conventions.places(tensor)]
        return CheckpointInfo(
            path=str(path),
            format="gguf",
            architecture=config["architectures"][0],
            config=config,
            quantization="gguf",
            quantization_config=_described(tensors, places),
            generation_config=generation_config(header, config["vocab_size"]),
            num_bytes=sum(tensor.num_bytes for tensor in tensors),
            num_parameters=sum(prod(tensor.shape) for tensor in tensors),
            tensors={place.name: (place.shape, _stored(place, kind)) for place, kind in places}
            | {scalar.name: (scalar.shape, "float32") for scalar in scalars(header, conventions)},
            license=_license(header),
            pooling=pooling(header),
            files=tuple(str(part.path) for part in parts),
            tokenizer_fault="" if _TOKENS in header else f"{path} has no vocabulary ({_TOKENS})",
        )

    def tokenizer(self, path: Path) -> Tokenizer:
        """Build the tokenizer from the file's vocabulary.

        Raises:
            CheckpointError: `CORE-M143`, naming what the vocabulary lacks or what is not understood.
        """
        from core_plugin_gguf.vocabulary import Vocabulary, build_backend

        header = open_parts(path)[0]
        vocabulary = Vocabulary.of(header)
        ids = special_ids(header, len(vocabulary.tokens))
        return fast_tokenizer(
            build_backend(vocabulary),
            special={name.removesuffix("_id"): vocabulary.tokens[number] for name, number in ids.items()},
            chat_template=header.text(_TEMPLATE) or None,
            chat_templates=_named_templates(header),
            eos_ids=eos_ids(header, len(vocabulary.tokens)),
        )

    def tensors(self, path: Path, progress: Callable[[int], None]) -> Iterator[WeightTensor]:
        """Yield every tensor of the model once, in file order, under Hugging Face's names."""
        from core_plugin_gguf.tensors import read_tensors

        parts = open_parts(path)
        return read_tensors(parts, _conventions(parts), progress)


def _named_templates(header: Header) -> dict[str, str]:
    """Return the templates for special purposes by name: those listed, and those that no list names."""
    start = f"{_TEMPLATE}."
    names = header.strings(f"{_TEMPLATE}s") or []
    names += [key.removeprefix(start) for key in header if key.startswith(start)]
    found = {name: header.text(start + name) for name in names}
    return {name: source for name, source in found.items() if name and source}


def _license(header: Header) -> str | None:
    with suppress(CheckpointError):  # of another type: no reason to refuse the model
        return header.text("general.license") or None
    return None


def _conventions(parts: list[Header]) -> Conventions:
    names = {tensor.name for part in parts for tensor in part.tensors}
    return Conventions.of(parts[0], architecture(parts[0]), names)


def _stored(place: Place, kind: Kind) -> str:
    """Return the dtype or form that a tensor is given in."""
    changed = place.keys or place.columns or place.decays or (place.turned and kind not in FLOATS)
    return "float32" if changed else stored_as(kind)


def _described(tensors: Sequence[TensorInfo], places: Sequence[tuple[Place, Kind]]) -> dict[str, object]:
    """Return what a method must know before tensors are read."""
    return {
        "types": dict(Counter(one.kind.name for one in tensors)),
        "tensors": {place.name: kind.name for place, kind in places if len(place.shape) == 2 and not place.opened},
        "undecodable": {one.kind.name: one.name for one in tensors if one.kind not in DECODABLE},
    }
