"""A checkpoint and references for the conformance kit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from core_testing.conformance import CheckpointSample, Sample, SourceSample
from core_testing.tinymodels import tiny_tokenizer


def samples() -> Iterator[Sample]:
    """Yield a checkpoint in one file and one in two, and references to files and directories."""
    yield CheckpointSample("one file", lambda folder: _write(folder, 1), values=_values, text="two words, and 3.")
    yield CheckpointSample("two files", lambda folder: _write(folder, 2), values=_values)
    yield SourceSample(
        "a directory", make=lambda folder: str(_write(folder, 1)), missing="/there/is/no/model.gguf", plugin="local"
    )
    yield SourceSample("a cached model", make=_cache, missing="acme/not-cached", environment=_offline, plugin="hub")


def _write(folder: Path, files: int) -> Path:
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 8, "vocab_size": 12}
    (folder / "config.json").write_text(json.dumps(config))
    items = list(_values().items())
    for number in range(files):
        name = "model.safetensors" if files == 1 else f"model-{number + 1:05}-of-{files:05}.safetensors"
        save_file(dict(items[number::files]), folder / name)
    return tiny_tokenizer(folder)


def _cache(folder: Path) -> str:
    """Put a model into a cache of the hub's client, as a download leaves it; return the model's id."""
    model, commit = folder / "models--acme--tiny", "0" * 40
    snapshot = model / "snapshots" / commit
    snapshot.mkdir(parents=True)
    _write(snapshot, 1)
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text(commit)
    return "acme/tiny"


def _offline(folder: Path) -> dict[str, str]:
    """Return the environment in which the hub's client reads that cache and never asks the network."""
    return {"HF_HUB_CACHE": str(folder), "HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}


def _values() -> dict[str, Tensor]:
    rng = torch.Generator().manual_seed(2)
    return {
        "model.embed_tokens.weight": torch.randn(12, 8, generator=rng),
        "model.layers.0.mlp.up_proj.weight": torch.randn(16, 8, generator=rng),
        "model.norm.weight": torch.randn(8, generator=rng),
    }
