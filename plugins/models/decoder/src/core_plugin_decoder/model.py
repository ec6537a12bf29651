"""The model that a description stands for.

Shapes: T tokens of a step, all requests one after another; D hidden size.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

from core.api import WeightRules
from core_plugin_decoder.description import Attention
from core_plugin_decoder.embedding import DecoderEmbedding
from core_plugin_decoder.index import Picked
from core_plugin_decoder.joined import as_stored
from core_plugin_decoder.layers import Crossing, sublayers
from core_plugin_decoder.norms import norm
from core_plugin_decoder.scoring import LinearScores, TokenScores

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor

    from core.api import LayerBuilder, StepInputs
    from core_plugin_decoder.description import Decoder
    from core_plugin_decoder.layers import Sublayer

    _Layer = tuple[Crossing | None, list[Sublayer]]


class CausalLM:
    """A decoder with its output projection, or the head that its checkpoint has instead.

    Attributes:
        describe: Returns the description of a configuration; a family's own.
    """

    describe: ClassVar[Callable[[Mapping[str, Any]], Decoder]]

    def __init__(self, config: Mapping[str, Any], build: LayerBuilder) -> None:
        decoder = as_stored(type(self).describe(config), config)
        self.embed = DecoderEmbedding(decoder, build)
        growths = {
            given: build.by_position(1, _growing(*given))
            for given in dict.fromkeys(one.grows for one in decoder.attentions if isinstance(one, Attention))
            if given is not None
        }
        layers: list[_Layer] = []
        picked = Picked(len(decoder.layers) * decoder.halves)
        for index, layer in enumerate(decoder.layers):
            grows = layer.attention.grows if isinstance(layer.attention, Attention) else None
            growth = None if grows is None else growths[grows]
            crossing = Crossing(layer) if layer.keeps or layer.blends else None
            layers.append((crossing, sublayers(decoder, layer, build, index, growth, picked)))
        self.passes = [layers]
        for turn in range(1, decoder.passes):
            later = turn * len(layers) * decoder.halves
            self.passes.append([(crossing, [one.again(build, later) for one in bodies]) for crossing, bodies in layers])
        self.norm_between = decoder.norm_between
        last = decoder.final_norm
        self.norm = None if last is None else norm(last, build, decoder.hidden_size, decoder.root)
        self.project_out = None
        if decoder.embed_size is not None:
            path = decoder.path(decoder.project_out)
            self.project_out = build.linear(decoder.hidden_size, decoder.embed_size, path)
        if decoder.pooling is None or decoder.score.tokens:
            self.project = build.lm_head(
                decoder.vocab_size,
                decoder.embed_size or decoder.hidden_size,
                decoder.head,
                tied_to=self.embed.tokens if decoder.tied else None,
                bias=decoder.head_bias,
            )
            self.scale, self.cap = decoder.logit_scale, decoder.softcap
            self.logits = self.project if self.scale == 1.0 and self.cap is None else self._scaled
        if decoder.score.tokens:
            self.classify: Callable[[Tensor], Tensor] = TokenScores(decoder.score, self.logits)
        elif decoder.pooling is not None and decoder.pooling.labels:
            width = decoder.embed_size or decoder.hidden_size
            self.classify = LinearScores(decoder.score, build, width, len(decoder.pooling.labels))
        elif decoder.pooling is not None and decoder.pooling.size:
            self.project_out = build.linear(decoder.hidden_size, decoder.pooling.size, "linear")

    @classmethod
    def weight_rules(cls, config: Mapping[str, Any]) -> WeightRules:
        """Leave out the rotary frequencies that old checkpoints store; embedding models often have no prefix."""
        decoder = as_stored(cls.describe(config), config)
        beside = [part.name for part in (decoder.learned, decoder.embed_norm, decoder.final_norm) if part is not None]
        if decoder.embed_size is not None:
            beside += [decoder.project_in, decoder.project_out]
        inside = sorted({name.split(".")[0] for name in (decoder.layer, decoder.embed, *beside)})
        bare: tuple[tuple[str, str], ...] = ()
        if decoder.root:
            bare = tuple((f"{name}.", f"{decoder.root}.{name}.") for name in inside)
        return WeightRules(
            rename=(*decoder.renames, *bare),
            skip=(
                *("*.rotary_emb.inv_freq", *decoder.skips),
                *((f"{decoder.head}.*",) if decoder.pooling is not None and not decoder.score.tokens else ()),
            ),
            transpose=decoder.transposes,
            experts=decoder.experts,
        )

    def forward(self, step: StepInputs) -> Tensor:
        """Return the final hidden states, `(T, D)`."""
        hidden = self.embed(step)
        for turn, layers in enumerate(self.passes, start=1):
            hidden = self._passed(layers, hidden, step, normed=self.norm_between or turn == len(self.passes))
        return hidden if self.project_out is None else self.project_out(hidden)

    def _passed(self, layers: list[_Layer], residual: Tensor, step: StepInputs, *, normed: bool) -> Tensor:
        """Run the layers, `(T, D) -> (T, D)`, and the norm behind them."""
        pending: Tensor | None = None
        kept: dict[int, Tensor] = {}
        for crossing, bodies in layers:
            if crossing is not None:
                pending, residual = crossing(pending, residual, kept)
            for body in bodies:
                pending, residual = body(pending, residual, step)
        if self.norm is None or not normed:
            return residual if pending is None else residual + pending
        return self.norm(residual) if pending is None else self.norm.add(pending, residual)[0]

    def _scaled(self, hidden: Tensor) -> Tensor:
        """Project `(rows, D)` to `(rows, vocab)`; float32 where they are capped."""
        logits = self.project(hidden)
        if self.scale != 1.0:
            logits = logits * self.scale
        if self.cap is None:
            return logits
        # In 16 bits, near the cap, neighbouring logits would become equal.
        return logits.float().div_(self.cap).tanh_().mul_(self.cap)


def _growing(rate: float, original: int, ahead: int = 0) -> Callable[[int], Tensor]:
    """Return what makes the table of `Attention.grows`."""

    def rows(count: int) -> Tensor:
        import torch

        return torch.tensor([[1 + rate * math.log(1 + place // original)] for place in range(ahead, ahead + count)])

    return rows
