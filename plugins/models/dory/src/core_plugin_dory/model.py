"""Dory: hidden states of one length, and layers in the middle that run several times.

Shapes: T tokens of a step; D hidden size. Rows are `sqrt(D)` times as long as in the published formula: see `layers`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from core.api import WeightRules
from core_plugin_dory.family import loops_of, read, scales_of
from core_plugin_dory.layers import EPS, DoryLayer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from core.api import LayerBuilder, StepInputs


class Dory:
    """The architecture."""

    def __init__(self, config: Mapping[str, Any], build: LayerBuilder) -> None:
        decoder, plan, scales = read(config), loops_of(config), scales_of(config)
        hidden, vocabulary, count = decoder.hidden_size, decoder.vocab_size, len(decoder.layers)
        self.length = hidden**0.5
        self.embed = build.embedding(vocabulary, hidden, decoder.path(decoder.embed))
        layers = [DoryLayer(decoder, build, index, scales) for index in range(count)]
        inside = layers[plan.first : plan.last]
        self.before, self.behind = layers[: plan.first], layers[plan.last :]
        self.loops = [inside, *([layer.again(turn * count) for layer in inside] for turn in range(1, plan.times))]
        self.norm = build.rms_norm(hidden, EPS, decoder.root, weight=False)
        self.project = build.lm_head(vocabulary, hidden, decoder.head)
        share = scales.usual / self.length
        self.scale = build.parameter(
            f"{decoder.head}.logit_scale", (vocabulary,), shard="out", read=lambda stored: stored * share
        )

    @classmethod
    def weight_rules(cls, config: Mapping[str, Any]) -> WeightRules:
        """Return no rules for names: layers have those of the checkpoint."""
        return WeightRules()

    def forward(self, step: StepInputs) -> Tensor:
        """Return the final hidden states, `(T, D)`."""
        hidden: Tensor = self.embed(step.token_ids) * self.length
        for layer in self.before:
            hidden = layer(hidden, step)
        given = hidden
        for layers in self.loops:
            hidden = self.norm(hidden + given)
            for layer in layers:
                hidden = layer(hidden, step)
            hidden = self.norm(hidden)
        for layer in self.behind:
            hidden = layer(hidden, step)
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        """Project `(rows, D)` to `(rows, vocab)`: float32, in which neighbouring logits stay apart."""
        logits: Tensor = self.project(hidden).float()
        return logits * self.scale()
