"""Input of the first layer: token embeddings, positions, a norm, a projection."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from core_plugin_decoder.norms import norm

if TYPE_CHECKING:
    from torch import Tensor

    from core.api import LayerBuilder, StepInputs
    from core_plugin_decoder.description import Decoder


class DecoderEmbedding:
    """Tokens and positions of a step, `(T, D)`.

    Attributes:
        tokens: The token embedding, to which the head may be tied.
    """

    def __init__(self, decoder: Decoder, build: LayerBuilder) -> None:
        width, learned = decoder.embed_size or decoder.hidden_size, decoder.learned
        self.tokens = build.embedding(decoder.vocab_size, width, decoder.path(decoder.embed), scale=decoder.embed_scale)
        self.project = None
        if decoder.embed_size is not None:
            self.project = build.linear(width, decoder.hidden_size, decoder.path(decoder.project_in))
        self.positions, self.offset = None, 0
        if learned is not None:
            self.offset = learned.offset
            self.positions = build.embedding(learned.rows, decoder.hidden_size, decoder.path(learned.name), shard=None)
        elif decoder.sinusoid is not None:
            first, size = decoder.sinusoid, decoder.hidden_size
            self.positions = build.by_position(size, lambda rows: sinusoid(rows, size, first))
        given = decoder.embed_norm
        self.norm = None if given is None else norm(given, build, decoder.hidden_size, decoder.root)

    def __call__(self, step: StepInputs) -> Tensor:
        """Return what the first layer reads."""
        hidden = self.tokens(step.token_ids)
        if self.project is not None:
            hidden = self.project(hidden)
        if self.positions is not None:
            places = step.positions if not self.offset else step.positions + self.offset
            hidden = hidden + self.positions(places)
        return hidden if self.norm is None else self.norm(hidden)


def sinusoid(rows: int, size: int, first: int = 0) -> Tensor:
    """Return sines, then cosines, of positions `first, first + 1, ...`, `(rows, size)` float32; as in fairseq."""
    import torch

    half = size // 2
    slower = torch.exp(torch.arange(half, dtype=torch.float32) * -(math.log(10000) / (half - 1)))
    angles = torch.arange(first, first + rows, dtype=torch.float32)[:, None] * slower
    table = torch.cat((angles.sin(), angles.cos()), dim=1)
    return torch.nn.functional.pad(table, (0, size % 2))
