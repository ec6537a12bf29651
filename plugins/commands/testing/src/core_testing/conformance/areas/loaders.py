"""Weight loaders: their own samples, every tensor once, and a clear error for a damaged file."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import torch

from core.api.descriptors import WeightLoaderSpec
from core.api.errors import CheckpointError
from core.api.weights import CheckpointInfo, CheckpointReader
from core_testing.conformance.device_samples import CheckpointSample
from core_testing.conformance.outcome import NotApplicable, checks, require, require_core_error
from core_testing.conformance.subject import Subject
from core_testing.conformance.tools.devices import largest_difference
from core_testing.conformance.tools.interpreters import ask

_PADDING = 128
"""Bytes at a file's end that may be padding, which nobody misses."""


def recognises_its_samples(subject: Subject) -> None:
    """It recognises its own format, the descriptor's patterns match its file names, and other files are not its."""
    patterns = subject.spec(WeightLoaderSpec).patterns
    for sample, path in _checkpoints(subject):
        require(_reader(subject).recognises(path), f"it does not recognise '{sample.name}'")
        names = [file.name for file in path.iterdir()] if path.is_dir() else [path.name]
        fits = any(fnmatchcase(name, pattern) for name in names for pattern in patterns)
        require(fits, f"none of {', '.join(sorted(names))} matches its patterns {', '.join(patterns)}")
    folder = subject.folder()
    require(not _reader(subject).recognises(folder), "it recognises an empty directory")
    for name in ("notes.txt", *(pattern.replace("*", "x") for pattern in patterns)):
        (folder / name).write_bytes(b"these are no weights at all")
        path = folder if name == "config.json" else folder / name
        require(not _claims(subject, path), f"it takes a file {name} with a line of text for a checkpoint")
        (folder / name).unlink()


def inspect_states_the_facts(subject: Subject) -> None:
    """`inspect` names its format, the architecture and the size, and its answer survives JSON."""
    for sample, path in _checkpoints(subject):
        info = _reader(subject).inspect(path)
        require(isinstance(info, CheckpointInfo), f"inspect gives a {type(info).__name__}")
        name = subject.entry.name
        require(info.format == name, f"'{sample.name}': the format is said to be {info.format}, not {name}")
        require(info.architecture and info.config, f"'{sample.name}': it names no architecture or configuration")
        require(Path(info.path) == path, f"'{sample.name}': its path is said to be {info.path}")
        again = CheckpointInfo.model_validate_json(info.model_dump_json())
        require(again == info, f"'{sample.name}': its facts do not survive JSON")


def inspecting_needs_no_torch(subject: Subject) -> None:
    """Importing it, `recognises`, `inspect` and `tokenizer` work where torch cannot be imported."""
    for sample, path in _checkpoints(subject):
        request = {"impl": subject.descriptor.impl, "path": str(path), "tokenizer": sample.text is not None}
        facts = ask("reader", request)
        asked = f" (it asked for {', '.join(facts['imports'])})" if facts["imports"] else ""
        require("error" not in facts, f"'{sample.name}' without torch{asked}: {facts.get('error')}")
        require(not facts["imports"], f"'{sample.name}'{asked}")


def every_tensor_comes_once(subject: Subject) -> None:
    """Names and shapes are those that are meant, and those that `inspect` tells; no tensor comes twice.

    A loader that `invents` gives none.
    """
    for sample, path in _checkpoints(subject):
        found = _names(_reader(subject), path)
        if _invents(subject):
            require(not found, f"'{sample.name}': core makes the weights up, yet it gives {len(found)} tensors")
            continue
        names = [name for name, _ in found]
        twice = sorted({name for name in names if names.count(name) > 1})
        require(not twice, f"'{sample.name}': {', '.join(twice)} come twice")
        told = {name: shape for name, (shape, _) in _reader(subject).inspect(path).tensors.items()}
        require(not told or told == dict(found), f"'{sample.name}', inspect: {_differences(told, dict(found))}")
        if sample.values is None or sample.layers:
            continue  # a quantized checkpoint has tensors of its method's own
        meant = {name: tuple(value.shape) for name, value in sample.values().items()}
        require(dict(found) == meant, f"'{sample.name}': {_differences(dict(found), meant)}")


def values_are_those_meant(subject: Subject) -> None:
    """`dense` gives the values in the dtype that is asked for, and in the tensor's shape."""
    for sample, path in _checkpoints(subject):
        meant = sample.values() if sample.values is not None else {}
        for tensor in _reader(subject).tensors(path, _ignore):
            for dtype in (torch.float32, torch.bfloat16):
                found = tensor.dense(dtype)
                where = f"'{sample.name}', tensor {tensor.name}"
                require(found.dtype == dtype, f"{where}: asked for {dtype}, got {found.dtype}")
                shape = tuple(found.shape)
                require(shape == tuple(tensor.shape), f"{where} has shape {shape}, announced is {tensor.shape}")
            if tensor.name in meant:
                error = largest_difference(tensor.dense(torch.float32), meant[tensor.name])
                require(error <= sample.tolerance, f"{where} is off by {error:.2g}, allowed {sample.tolerance:g}")


def progress_adds_up(subject: Subject) -> None:
    """The bytes that `tensors` reports add up to what `inspect` announced."""
    for sample, path in _checkpoints(subject):
        reported: list[int] = []
        for _ in _reader(subject).tensors(path, reported.append):
            pass
        total = _reader(subject).inspect(path).num_bytes
        require(sum(reported) == total, f"'{sample.name}': {sum(reported)} bytes reported, {total} announced")


def truncated_files_are_refused(subject: Subject) -> None:
    """A weight file that is cut off anywhere gives a `CheckpointError`, nothing else and never silence."""
    if _invents(subject):
        raise NotApplicable("it reads no weight file")
    for sample, path in _checkpoints(subject):
        for file, length in _cuts(path):
            folder = subject.folder()
            copy = folder / path.name if path.is_file() else folder / "copy"
            shutil.copytree(path, copy) if path.is_dir() else shutil.copy(path, copy)
            damaged = copy / file.relative_to(path) if path.is_dir() else copy
            with damaged.open("r+b") as handle:
                handle.truncate(length)
            what = f"'{sample.name}' with {file.name} cut to {length} of {file.stat().st_size} bytes"
            require_core_error(_read_all, subject, copy, what=what, kind=CheckpointError)


def missing_files_are_refused(subject: Subject) -> None:
    """A path where nothing is, or an empty directory, gives a `CheckpointError`."""
    reader, folder = _reader(subject), subject.folder()
    for path in (folder / "nowhere", folder):
        require_core_error(reader.inspect, path, what=f"inspect of {path}", kind=CheckpointError)
        if not _invents(subject):
            require_core_error(_names, reader, path, what=f"tensors of {path}", kind=CheckpointError)


def tokenizer_loses_nothing(subject: Subject) -> None:
    """The checkpoint's tokenizer encodes the sample's text and decodes it again."""
    for sample, path in _checkpoints(subject):
        if sample.text is None:
            continue
        tokenizer = _reader(subject).tokenizer(path)
        ids = tokenizer.encode(sample.text, add_special_tokens=False)
        back = tokenizer.decode(ids)
        require(back == sample.text, f"'{sample.name}': {sample.text!r} comes back as {back!r}")
        require(all(0 <= one < tokenizer.vocab_size for one in ids), f"'{sample.name}': ids outside the vocabulary")


def a_missing_tokenizer_is_told(subject: Subject) -> None:
    """`inspect` says that there is no tokenizer (`tokenizer_fault`) where `tokenizer` makes none, and only there."""
    for sample, path in _checkpoints(subject):
        reader = _reader(subject)
        fault = reader.inspect(path).tokenizer_fault
        try:
            reader.tokenizer(path)
        except CheckpointError as error:
            require(fault, f"'{sample.name}': tokenizer refuses it ({error}), but inspect tells no tokenizer_fault")
        else:
            require(not fault, f"'{sample.name}': it has a tokenizer, but inspect tells {fault!r}")


def _checkpoints(subject: Subject) -> Iterator[tuple[CheckpointSample, Path]]:
    """Yield the samples of this loader with their paths; each is written once in a run."""
    for sample in subject.need_samples(CheckpointSample):
        path = subject.once(f"checkpoint {sample.name}", lambda sample=sample: sample.write(subject.folder()))  # type: ignore[misc]
        yield sample, path


def _reader(subject: Subject) -> CheckpointReader:
    reader: CheckpointReader = subject.impl()()
    return reader


def _invents(subject: Subject) -> bool:
    return subject.spec(WeightLoaderSpec).invents


def _claims(subject: Subject, path: Path) -> bool:
    """Say whether it recognises `path` and then also reads it."""
    if not _reader(subject).recognises(path):
        return False
    try:
        _read_all(subject, path)
    except CheckpointError:
        return False
    return True


def _names(reader: CheckpointReader, path: Path) -> list[tuple[str, tuple[int, ...]]]:
    return [(tensor.name, tuple(tensor.shape)) for tensor in reader.tensors(path, _ignore)]


def _read_all(subject: Subject, path: Path) -> None:
    reader = _reader(subject)
    reader.inspect(path)
    for tensor in reader.tensors(path, _ignore):
        tensor.dense(torch.float32)


def _cuts(path: Path) -> Iterator[tuple[Path, int]]:
    """Yield weight files (those that are not texts) and the lengths to cut them to."""
    files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    for file in files:
        if file.suffix not in (".json", ".txt", ".jinja", ".model"):
            size = file.stat().st_size
            yield from ((file, length) for length in (0, 7, size // 4, size // 2, size - _PADDING))


def _differences(found: dict[str, tuple[int, ...]], meant: dict[str, tuple[int, ...]]) -> str:
    parts = [f"{name} is missing" for name in sorted(meant.keys() - found.keys())]
    parts += [f"{name} is not meant" for name in sorted(found.keys() - meant.keys())]
    both = sorted(found.keys() & meant.keys())
    parts += [f"{name} has shape {found[name]}, not {meant[name]}" for name in both if found[name] != meant[name]]
    return "; ".join(parts[:4])


def _ignore(num_bytes: int) -> None:
    """Stand in for a progress display."""


CHECKS = checks(
    recognises_its_samples,
    inspect_states_the_facts,
    inspecting_needs_no_torch,
    every_tensor_comes_once,
    values_are_those_meant,
    progress_adds_up,
    truncated_files_are_refused,
    missing_files_are_refused,
    tokenizer_loses_nothing,
    a_missing_tokenizer_is_told,
)
