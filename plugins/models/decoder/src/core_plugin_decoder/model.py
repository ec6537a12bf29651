"""The model that a description stands for.

Shapes: T tokens of a step, all requests one after another; D hidden size.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

from core.api import WeightRules
from core_plugin_decoder.embedding import DecoderEmbedding
from core_plugin_decoder.layers import sublayers
from core_plugin_decoder.norms import norm

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor

    from core.api import LayerBuilder, StepInputs
    from core.api.models import Embedding
    from core_plugin_decoder.description import Decoder


class CausalLM:
    """A decoder with its output projection, or the head that its checkpoint has instead.

    Attributes:
        describe: Returns the description of a configuration; a family's own.
    """

    describe: ClassVar[Callable[[Mapping[str, Any]], Decoder]]

    def __init__(self, config: Mapping[str, Any], build: LayerBuilder) -> None:
        decoder = type(self).describe(config)
        self.embed = DecoderEmbedding(decoder, build)
        growths: dict[tuple[float, ...], Embedding] = {}
        self.sublayers = []
        for index, layer in enumerate(decoder.layers):
            given = layer.attention.grows
            if given is not None and given not in growths:
                growths[given] = build.by_position(1, _growing(*given))
            growth = None if given is None else growths[given]
            self.sublayers += sublayers(decoder, layer, build, index, growth)
        last = decoder.final_norm
        self.norm = None if last is None else norm(last, build, decoder.hidden_size, decoder.root)
        self.project_out = None
        if decoder.embed_size is not None:
            path = decoder.path(decoder.project_out)
            self.project_out = build.linear(decoder.hidden_size, decoder.embed_size, path)
        if decoder.pooling is None:
            self.project = build.lm_head(
                decoder.vocab_size,
                decoder.embed_size or decoder.hidden_size,
                decoder.head,
                tied_to=self.embed.tokens if decoder.tied else None,
                bias=decoder.head_bias,
            )
            self.scale, self.cap = decoder.logit_scale, decoder.softcap
            self.logits = self.project if self.scale == 1.0 and self.cap is None else self._scaled
        elif decoder.pooling.labels:
            width = decoder.embed_size or decoder.hidden_size
            self.classify = build.linear(width, len(decoder.pooling.labels), "score")

    @classmethod
    def weight_rules(cls, config: Mapping[str, Any]) -> WeightRules:
        """Leave out the rotary frequencies that old checkpoints store; embedding models often have no prefix."""
        decoder = cls.describe(config)
        beside = [part.name for part in (decoder.learned, decoder.embed_norm, decoder.final_norm) if part is not None]
        if decoder.embed_size is not None:
            beside += [decoder.project_in, decoder.project_out]
        inside = sorted({name.split(".")[0] for name in (decoder.layer, decoder.embed, *beside)})
        bare: tuple[tuple[str, str], ...] = ()
        if decoder.root:
            bare = tuple((f"{name}.", f"{decoder.root}.{name}.") for name in inside)
        attention = decoder.layers[0].attention.name
        return WeightRules(
            rename=(*decoder.renames, *bare),
            skip=(
                *("*.rotary_emb.inv_freq", *decoder.skips),
                *((f"{decoder.head}.*",) if decoder.pooling is not None else ()),
            ),
            transpose=decoder.transposes,
            experts=decoder.experts,
            kv_scales=f"{decoder.layer_path('{}')}.{attention}",
        )

    def forward(self, step: StepInputs) -> Tensor:
        """Return the final hidden states, `(T, D)`."""
        residual, pending = self.embed(step), None
        for sublayer in self.sublayers:
            pending, residual = sublayer(pending, residual, step)
        if self.norm is None:
            hidden = residual if pending is None else residual + pending
        else:
            hidden = self.norm(residual) if pending is None else self.norm.add(pending, residual)[0]
        return hidden if self.project_out is None else self.project_out(hidden)

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
