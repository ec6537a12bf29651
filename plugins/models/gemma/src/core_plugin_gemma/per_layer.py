"""Inputs of each layer of Gemma 3n and 4 beside hidden states. Torch-free to import.

Shapes: T tokens of a step; D hidden size; N layers; P numbers of what a token gives a layer besides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from core_plugin_decoder import Fields
    from torch import Tensor

    from core.api import LayerBuilder, StepInputs


class LayerInputs:
    """From a table by token, and from the embedding."""

    def __init__(self, given: Fields, build: LayerBuilder, count: int, size: int) -> None:
        hidden, rows = given.integer("hidden_size"), given.integer("vocab_size_per_layer_input")
        name = "model.embed_tokens_per_layer"
        self.tokens = build.embedding(rows, count * size, name, scale=size**0.5, shard=None)
        vocabulary = given.integer("vocab_size")
        self.known = KnownIds(vocabulary, rows) if rows < vocabulary else None
        self.project = build.linear(hidden, count * size, "model.per_layer_model_projection")
        self.norm = build.rms_norm(size, norm_eps(given), "model.per_layer_projection_norm")
        self.scale, self.view = hidden**-0.5, (-1, count, size)

    def __call__(self, embedded: Tensor, step: StepInputs) -> Tensor:
        """Return `(T, N, P)` from embeddings `(T, D)`."""
        projected = self.norm((self.project(embedded) * self.scale).view(self.view))
        ids = step.token_ids if self.known is None else self.known(step.token_ids)
        return (projected + self.tokens(ids).view(self.view)) * 2**-0.5


class KnownIds:
    """Token ids of a table that has fewer rows than the vocabulary: ids without a row count as 0, as in training.

    They are looked up, not compared, so that a recorded step needs no torch for them.
    """

    def __init__(self, vocabulary: int, rows: int) -> None:
        self._vocabulary, self._rows = vocabulary, rows
        self._ids: Tensor | None = None

    def __call__(self, ids: Tensor) -> Tensor:
        """`(T,) int64 -> (T,) int64`."""
        if self._ids is None:
            import torch

            every = torch.arange(self._vocabulary, device=ids.device)
            self._ids = every.where(every < self._rows, 0).unsqueeze(1)
        return self._ids.index_select(0, ids).view(-1)


class LayerInput:
    """`norm(up(act(gate(x)) * input))`: what a layer adds of its own input."""

    def __init__(self, given: Fields, build: LayerBuilder, path: str, size: int) -> None:
        hidden = given.integer("hidden_size")
        self.gate = build.linear(hidden, size, f"{path}.per_layer_input_gate")
        self.activation = build.activation(activation(given))
        self.project = build.linear(size, hidden, f"{path}.per_layer_projection")
        self.norm = build.rms_norm(hidden, norm_eps(given), f"{path}.post_per_layer_input_norm")

    def __call__(self, hidden: Tensor, given: Tensor) -> Tensor:
        """`(T, D)`, `(T, P)` -> `(T, D)`."""
        return self.norm(self.project(self.activation(self.gate(hidden)) * given))


def norm_eps(given: Fields) -> float:
    """Return what all norms add to the mean square."""
    return given.number("rms_norm_eps", 1e-6, least=0.0)


def activation(given: Fields) -> str:
    """Return the activation of the MLPs and of `LayerInput`."""
    return given.text("hidden_activation", "gelu_pytorch_tanh")
