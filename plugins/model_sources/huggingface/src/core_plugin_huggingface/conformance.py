"""A checkpoint and references for the conformance kit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from core.testing.conformance import CheckpointSample, Sample, SourceSample
from core.testing.tinymodels import tiny_tokenizer


def samples() -> Iterator[Sample]:
    """Yield a checkpoint in one file and one in two, and references to files and directories."""
    yield CheckpointSample("one file", lambda folder: _write(folder, 1), values=_values, text="two words, and 3.")
    yield CheckpointSample("two files", lambda folder: _write(folder, 2), values=_values)
    yield SourceSample(
        "a directory", make=lambda folder: str(_write(folder, 1)), missing="/there/is/no/model.gguf", plugin="local"
    )


def _write(folder: Path, files: int) -> Path:
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 8, "vocab_size": 12}
    (folder / "config.json").write_text(json.dumps(config))
    items = list(_values().items())
    for number in range(files):
        name = "model.safetensors" if files == 1 else f"model-{number + 1:05}-of-{files:05}.safetensors"
        save_file(dict(items[number::files]), folder / name)
    return tiny_tokenizer(folder)


def _values() -> dict[str, Tensor]:
    rng = torch.Generator().manual_seed(2)
    return {
        "model.embed_tokens.weight": torch.randn(12, 8, generator=rng),
        "model.layers.0.mlp.up_proj.weight": torch.randn(16, 8, generator=rng),
        "model.norm.weight": torch.randn(8, generator=rng),
    }
