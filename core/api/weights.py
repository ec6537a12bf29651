"""Checkpoints: from a reference to files, to facts, to tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from pydantic import BaseModel, ConfigDict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    import torch
    from torch import Tensor

    from core.api.tokenizer import Tokenizer


class ModelFiles(BaseModel):
    """Where a model reference leads on this machine.

    Attributes:
        reference: What the user wrote.
        path: A file or a directory.
        name: Name to serve the model under.
        revision: Commit or version, if the source has one.
        generation_config: Sampling defaults of the model's makers that its files do not name; what files say counts
            more.
    """

    model_config = ConfigDict(frozen=True)

    reference: str
    path: str
    name: str
    revision: str | None = None
    generation_config: dict[str, Any] = {}


class ModelSource(Protocol):
    """Runtime of a `ModelSourceSpec`; torch-free."""

    def resolve(self, reference: str | None, *, revision: str | None = None) -> ModelFiles | None:
        """Return the files behind `reference`, or None if it is not this source's business.

        Raises:
            CheckpointError: The reference is this source's, but cannot be had (the message says why).
        """
        ...


class CheckpointInfo(BaseModel):
    """Facts of a checkpoint, read without torch and without touching tensor data.

    Attributes:
        path: The checkpoint (file or directory).
        format: Name of the weight loader that read it.
        architecture: Hugging Face architecture name.
        config: Model configuration with Hugging Face's keys.
        quantization: Method that stored the weights; `none` for plain tensors.
        quantization_config: The method's own description.
        generation_config: Sampling defaults that the model's makers give (temperature, top_p, eos_token_id, ...).
        num_bytes: Size of the tensor data.
        num_parameters: Values of all tensors; None where that is not known without reading them.
        tensors: `name -> (shape, dtype)` of every tensor that `tensors` of the reader will yield, as the file's header
            gives them; the dtype is torch's name (`bfloat16`), or the storage form (`gguf:Q4_1`). Empty where that is
            not known without reading them: sizes are then found wrong only while weights are loaded.
        config_file: File that the configuration was read from; empty: `path`.
        license: Licence that the makers name, for example `apache-2.0`.
        pooling: How the checkpoint's makers pool, where they say so: `method`, `normalize`, `dense`, `prompts` and
            `default_prompt` as in `PoolingShape`,
            `max_length` in tokens.
        files: Paths of the files that hold tensor data, in the order in which `tensors` reads them. Empty where that is
            not told: packed weights of the checkpoint are then not kept.
        tokenizer_fault: Why it has no tokenizer, as far as that is told without reading one ("there is no
            tokenizer.json in DIR"); empty otherwise. A model that generates is then refused before it is loaded.
        tokenizer_remedy: What a user can do about it, in a sentence.
    """

    model_config = ConfigDict(frozen=True)

    path: str
    format: str
    architecture: str
    config: dict[str, Any]
    quantization: str = "none"
    quantization_config: dict[str, Any] = {}
    generation_config: dict[str, Any] = {}
    num_bytes: int = 0
    num_parameters: int | None = None
    tensors: dict[str, tuple[tuple[int, ...], str]] = {}
    config_file: str = ""
    license: str | None = None
    pooling: dict[str, Any] = {}
    files: tuple[str, ...] = ()
    tokenizer_fault: str = ""
    tokenizer_remedy: str = ""


class WeightTensor(Protocol):
    """One tensor of a checkpoint, not read yet.

    Attributes:
        name: Name in Hugging Face's vocabulary (`model.layers.0.self_attn.q_proj.weight`).
        shape: Logical shape, `(rows, columns)` for a matrix.
        encoding: `plain`, or the storage form (`gguf:Q4_1`) that the quantization method decodes.

    A tensor may also have `release()`, called once its values were copied: memory that only maps a file can be given
    back.
    """

    name: str
    shape: tuple[int, ...]
    encoding: str

    def dense(self, dtype: torch.dtype) -> Tensor:
        """Return the tensor's values in `dtype`, of shape `shape`, decoded if it is encoded. Not to be written to."""
        ...

    def raw(self) -> Tensor:
        """Return the stored bytes: a uint8 tensor `(rows, bytes per row)` if encoded, else the tensor as stored.

        Like `dense`, it may be the memory in which a file shows: not to be written to.
        """
        ...


class CheckpointReader(Protocol):
    """Runtime of a `WeightLoaderSpec`. Importing it, `recognises`, `inspect` and `tokenizer` are torch-free."""

    def recognises(self, path: Path) -> bool:
        """Say whether `path`, a file or a directory, is a checkpoint of this format; False for anything else."""
        ...

    def inspect(self, path: Path) -> CheckpointInfo:
        """Read the facts. Raises `CheckpointError` naming the file, tensor or key that is wrong or missing."""
        ...

    def tokenizer(self, path: Path) -> Tokenizer:
        """Return the checkpoint's tokenizer. Raises `CheckpointError` if there is none."""
        ...

    def tensors(self, path: Path, progress: Callable[[int], None]) -> Iterator[WeightTensor]:
        """Yield every tensor once, in file order, calling `progress(bytes)` as they are consumed."""
        ...


class WeightManifest(BaseModel):
    """Manifest of a weight update.

    Attributes:
        version: Name of the new weights, as clients and hooks see it.
        tensors: `name -> (shape, dtype)` of every tensor that `WeightReceiver.stream` yields.
    """

    model_config = ConfigDict(frozen=True)

    version: str
    tensors: dict[str, tuple[tuple[int, ...], str]]


class WeightReceiver(Protocol):
    """Runtime of a `WeightTransferSpec` in the worker: a versioned update in two phases.

    Nothing of an update is visible to requests before the engine commits it.
    """

    def __init__(self, options: Mapping[str, Any]) -> None: ...

    def begin(self, info: Mapping[str, Any]) -> WeightManifest:
        """Open an update from `info` (for example `{"path": ...}`) and return its manifest."""
        ...

    def stream(self) -> Iterator[WeightTensor]:
        """Yield every tensor of the manifest once; asked after `begin`."""
        ...

    def end(self) -> None:
        """Release what `begin` opened, after commit as after abort."""
        ...


class KeptWeights(BaseModel):
    """Packed weights that a store has.

    Attributes:
        key: What they are kept under.
        model: Model that they were made from, as its user named it.
        path: The file or directory that holds them.
        num_bytes: What they take there.
        used: When they were last opened or written, in seconds since 1970, if that is known.
    """

    model_config = ConfigDict(frozen=True)

    key: str
    model: str
    path: str
    num_bytes: int
    used: float | None = None


class WeightStore(Protocol):
    """Runtime of a `WeightStoreSpec`: packed weights, by keys that core makes.

    A key stands for one content for good: whatever changes it (checkpoint, configuration, layouts) makes another key.
    Importing it, its constructor, `entries` and `remove` are torch-free. Nothing of what fails here ends a start: core
    warns, and packs the weights as without a store.
    """

    def open(self, key: str) -> Mapping[str, Tensor] | None:
        """Return the tensors kept under `key`, or None if there are none, or none that are whole.

        They are ordinary host tensors (contiguous, 64-byte aligned, writable without changing what is kept) and should
        be mapped, not read.
        """
        ...

    def keep(
        self, key: str, tensors: Mapping[str, Tensor], about: Mapping[str, str], wanted: Callable[[], bool]
    ) -> bool:
        """Keep tensors under `key`, all or none; return whether they are kept. Called on a thread of its own.

        Args:
            tensors: On any device, in any order; they are in use, and must not be changed.
            about: For people: `model`, the model as its user named it.
            wanted: Asked every few MiB; False: stop soon, and keep nothing.
        """
        ...

    def entries(self) -> Iterable[KeptWeights]:
        """Return what is kept, in any order."""
        ...

    def remove(self, key: str) -> int:
        """Remove what is kept under `key`; return the bytes that are freed, 0 if there was nothing."""
        ...
