"""Parts of Gemma 3n's layers beside attention and MLP: alternating updates (AltUp), a residual of low rank (Laurel).

Shapes: T tokens of a step; D hidden size; S streams of hidden states; P numbers of a layer's own input.
"""

from __future__ import annotations

from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import torch

from core_plugin_gemma.per_layer import LayerInput, norm_eps

if TYPE_CHECKING:
    from core_plugin_decoder import Fields
    from torch import Tensor

    from core.api import LayerBuilder, StepInputs
    from core.api.layers import Activation

_LEAST = 1e-5
"""Of the mean square that a stream is brought to the size of another by."""


class SparseGate:
    """`act(relu(gate - cutoff)) * up`, `(T, 2 * size) -> (T, size)`.

    The cutoff is that below which a normal distribution with the row's mean and deviation has a share of `sparsity`.
    """

    def __init__(self, activation: Activation, sparsity: float) -> None:
        self.activation, self.deviations = activation, NormalDist().inv_cdf(sparsity)

    def __call__(self, x: Tensor) -> Tensor:
        gate, up = x.chunk(2, dim=-1)
        centred = gate - gate.mean(-1, keepdim=True)
        deviation = _mean_square(centred).sqrt()
        return self.activation((centred - deviation * self.deviations).relu()) * up


class Streams:
    """How hidden states become several, and one again."""

    def __init__(self, given: Fields, build: LayerBuilder) -> None:
        hidden, further = given.integer("hidden_size"), range(given.integer("altup_num_inputs") - 1)
        self.project = [build.linear(hidden, hidden, f"model.altup_projections.{index}") for index in further]
        self.back = [build.linear(hidden, hidden, f"model.altup_unembed_projections.{index}") for index in further]

    def made(self, hidden: Tensor) -> Tensor:
        """`(T, D) -> (T, S, D)`."""
        return torch.stack([hidden, *(_as_great(project(hidden), hidden) for project in self.project)], dim=1)

    def joined(self, streams: Tensor) -> Tensor:
        """`(T, S, D) -> (T, D)`: the mean, with every stream brought back, and to the size of the first."""
        first = total = streams[:, 0].contiguous()
        for index, project in enumerate(self.back, start=1):
            total = total + _as_great(project(streams[:, index].contiguous()), first)
        return total * (1 / (len(self.back) + 1))


class StreamsLayer:
    """A layer: attention and MLP run on one stream, the others follow by coefficients that it gives.

    Args:
        path: Of the layer.
        size: P.
        attention, mlp: Its sublayers.
    """

    def __init__(self, given: Fields, build: LayerBuilder, path: str, size: int, attention: Any, mlp: Any) -> None:
        hidden = given.integer("hidden_size")
        self.attention, self.mlp = attention, mlp
        self.altup = AltUp(given, build, f"{path}.altup")
        rank = given.integer("laurel_rank")
        self.left = build.linear(hidden, rank, f"{path}.laurel.linear_left")
        self.right = build.linear(rank, hidden, f"{path}.laurel.linear_right")
        self.laurel_norm = build.rms_norm(hidden, norm_eps(given), f"{path}.laurel.post_laurel_norm")
        self.input = LayerInput(given, build, path, size)
        self.scale = None
        if given.flag("altup_correct_scale", default=True):
            self.scale = build.parameter(f"{path}.altup.correct_output_scale", (hidden,))

    def __call__(self, streams: Tensor, given: Tensor, step: StepInputs) -> Tensor:
        """`(T, S, D)`, `(T, P)` -> `(T, S, D)`."""
        predicted = self.altup.predicted(streams)
        active = predicted[:, self.altup.active].contiguous()
        normed = self.attention.before(active)
        laurel = normed + self.laurel_norm(self.right(self.left(normed)))
        attended = self.attention.after(self.attention.body(normed, step))
        added, hidden = self.mlp(None, (active + attended + laurel) * 2**-0.5, step)
        corrected = self.altup.corrected(predicted, hidden + added)
        first = corrected[:, self.altup.active].contiguous()
        own = self.input(first if self.scale is None else first * self.scale(), given)
        corrected[:, 1:].add_(own.unsqueeze(1))
        return corrected


class AltUp:
    """Coefficients by which streams are predicted from each other, and corrected by what became of one of them.

    Attributes:
        active: The stream on which attention and MLP run.
    """

    def __init__(self, given: Fields, build: LayerBuilder, path: str) -> None:
        hidden, count = given.integer("hidden_size"), given.integer("altup_num_inputs")
        self.active = given.integer("altup_active_idx", most=count - 1) if given.config.get("altup_active_idx") else 0
        self.count, self.share = count, 1 / hidden
        self.norm = build.rms_norm(hidden, norm_eps(given), f"{path}.router_norm")
        self.route = build.linear(hidden, count, f"{path}.modality_router")
        self.predict = build.linear(count, count * count, f"{path}.prediction_coefs")
        self.correct = build.linear(count, count, f"{path}.correction_coefs")

    def predicted(self, streams: Tensor) -> Tensor:
        """`(T, S, D) -> (T, S, D)`: each stream with a share of every stream added."""
        shares = self.predict(self._routed(streams[:, self.active].contiguous())).view(-1, self.count, self.count)
        out = streams
        for index in range(self.count):
            out = out + shares[:, :, index : index + 1] * streams[:, index : index + 1]
        return out

    def corrected(self, predicted: Tensor, became: Tensor) -> Tensor:
        """`(T, S, D)`, `(T, D)` -> `(T, S, D)`: each stream with a share of how the active one differs."""
        shares = self.correct(self._routed(became)) + 1.0
        difference = became - predicted[:, self.active]
        return predicted + difference.unsqueeze(1) * shares.unsqueeze(-1)

    def _routed(self, hidden: Tensor) -> Tensor:
        """`(T, D) -> (T, S)`, from -1 to 1."""
        return self.route(self.norm(hidden) * self.share).tanh()


def _as_great(x: Tensor, like: Tensor) -> Tensor:
    """Return `x` with the mean square of `like`, row by row."""
    return x * (_mean_square(like).sqrt() / _mean_square(x).clamp(min=_LEAST).sqrt())


def _mean_square(x: Tensor) -> Tensor:
    """`(T, D) -> (T, 1)`."""
    return x.square().mean(-1, keepdim=True)
