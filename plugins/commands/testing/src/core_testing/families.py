"""Tiny checkpoints of model families: what the tests of an architecture start from. A row of a table is a family."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core_testing.tinymodels import VOCAB_SIZE, tiny_tokenizer

_BASE: dict[str, Any] = {
    "vocab_size": VOCAB_SIZE - 7,
    "hidden_size": 80,
    "intermediate_size": 88,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
"""Sizes that divide as little as possible: a vocabulary that is a multiple of nothing, heads of 20."""


@dataclass(frozen=True)
class TinyFamily:
    """A tiny random checkpoint, and the model that it is compared with.

    Attributes:
        name: Unique among all rows.
        architecture: Name that `config.json` gives; transformers' class, unless `reference` is given.
        config: What differs from a common configuration; `model_type` among it. None takes a key out.
        reference: Returns a torch module of a configuration, `(batch, tokens) int64 -> logits` or an object with
            `logits`; for architectures that transformers has no class for.
        save: What its checkpoints call the reference's tensors: `(name, tensor) -> [(name, tensor), ...]`.
        native: What differs further where the native attention of a CPU is to take it (heads of a multiple of 16).
        spread: Standard deviation of the random weights.
        model_impl: The model implementation to ask for; None: the one that core chooses.
        programs: Whether its decode steps are programs without torch on a CPU; a text: why they are no programs.
        lacks: The attention feature that it needs and the native attention of a CPU does not have; empty for none.
            Another backend is then chosen for it.
    """

    name: str
    architecture: str
    config: Mapping[str, Any]
    reference: Callable[[Mapping[str, Any]], Any] | None = None
    save: Callable[[str, Any], list[tuple[str, Any]]] | None = None
    native: Mapping[str, Any] = field(default_factory=lambda: {"head_dim": 32})
    spread: float = 0.3
    model_impl: str | None = None
    programs: bool | str = True
    lacks: str = ""

    def values(self, **overrides: Any) -> dict[str, Any]:
        """Return the whole configuration."""
        merged = {**_BASE, **self.config, **overrides, "architectures": [self.architecture]}
        return {key: value for key, value in merged.items() if value is not None or key.endswith("_token_id")}

    def model(self, **overrides: Any) -> Any:
        """Return the reference with random weights, in float32 and evaluation mode; equal each time."""
        import torch

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = self._made(self.values(**overrides)).to(torch.float32).train(False)
            with torch.no_grad():
                for parameter in _stored(model):
                    # What is 1 at first stays near it: the factors of norms.
                    centre = 1.0 if parameter.ndim == 1 and bool((parameter == 1).all()) else 0.0
                    parameter.normal_(centre, self.spread)
                stored = model.state_dict().keys()
                for name, buffer in model.named_buffers():
                    # Zeros that checkpoints store are what training moves without gradients: biases of choices.
                    if name in stored and buffer.is_floating_point() and not buffer.any():
                        buffer.normal_(0.0, self.spread)
        return model

    def write(self, directory: Path, model: Any = None, **overrides: Any) -> Path:
        """Write the checkpoint, with a tokenizer, into `directory` and return it."""
        from safetensors.torch import save_file

        model = self.model(**overrides) if model is None else model
        if self.reference is None and self.save is None:
            model.save_pretrained(directory)
        else:
            rename = self.save or (lambda name, tensor: [(name, tensor)])
            stored = [pair for name, tensor in model.state_dict().items() for pair in rename(name, tensor)]
            directory.mkdir(parents=True, exist_ok=True)
            tensors = {name: tensor.contiguous().clone() for name, tensor in stored}
            save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
            (directory / "config.json").write_text(json.dumps(self.values(**overrides)))
        path = directory / "config.json"
        config = json.loads(path.read_text()) | {"architectures": [self.architecture]}
        path.write_text(json.dumps(config))
        tiny_tokenizer(directory)
        return directory

    def _made(self, values: Mapping[str, Any]) -> Any:
        if self.reference is not None:
            return self.reference(values)
        import transformers

        # Copies: transformers writes into nested objects.
        given = json.loads(json.dumps({key: value for key, value in values.items() if key != "architectures"}))
        config = transformers.AutoConfig.for_model(**given)
        config._attn_implementation = "eager"
        return getattr(transformers, self.architecture)(config)


def _stored(model: Any) -> list[Any]:
    """Return what checkpoints of a model hold: its parameters, and the buffers that are stored."""
    parameters = list(model.parameters())
    known = {one.data_ptr() for one in parameters}
    stored = model.state_dict(keep_vars=True).values()
    return parameters + [one for one in stored if one.is_floating_point() and one.data_ptr() not in known]


def logits_of(model: Any, tokens: list[int]) -> Any:
    """Return the reference's logits at all positions of a text, `(tokens, vocab)` float32."""
    import torch

    with torch.no_grad():
        out = model(torch.tensor([tokens]))
    return (out.logits if hasattr(out, "logits") else out)[0].float()
