"""The model. Shapes: T tokens of a step; S streams; D hidden size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from core.api import CheckpointError, WeightRules
from core_plugin_deepseek.fourth.attention import FourthAttention
from core_plugin_deepseek.fourth.experts import FourthExperts
from core_plugin_deepseek.fourth.reading import read
from core_plugin_deepseek.fourth.streams import LastStreams, Streams

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from core.api import LayerBuilder, StepInputs
    from core_plugin_deepseek.fourth.reading import Fourth, Layer


class DeepSeekV4:
    """The architecture.

    Raises:
        CheckpointError: CORE-M183, it is to be divided among ranks.
    """

    def __init__(self, config: Mapping[str, Any], build: LayerBuilder) -> None:
        given = read(config)
        if build.heads(given.heads, given.heads).heads != given.heads:
            raise CheckpointError("CORE-M183", "DeepSeek V4 cannot be divided among ranks yet.", hint="Use one rank.")
        self.embed = build.embedding(given.vocab_size, given.hidden_size, "embed")
        self.streams = given.streams
        compressed = [index for index, layer in enumerate(given.layers) if layer.compression is not None]
        indexed = [index for index in compressed if _picks(given.layers[index])]
        kv = {index: place for place, index in enumerate(compressed)}
        index_kv = {index: len(compressed) + place for place, index in enumerate(indexed)}
        self.layers = [
            FourthLayer(build, given, layer, f"layers.{index}", kv.get(index), index_kv.get(index))
            for index, layer in enumerate(given.layers)
        ]
        self.last = LastStreams(build, given, "hc_head")
        self.norm = build.rms_norm(given.hidden_size, given.eps, "norm")
        self.logits = build.lm_head(given.vocab_size, given.hidden_size, "head")

    @classmethod
    def weight_rules(cls, config: Mapping[str, Any]) -> WeightRules:
        """Take the makers' names, and transformers' of what is outside of layers."""
        groups = read(config).groups
        return WeightRules(
            rename=(
                ("model.layers.", "layers."),
                ("model.embed_tokens.", "embed."),
                ("model.norm.", "norm."),
                ("model.hc_head.hc_", "hc_head_"),
            ),
            skip=("mtp.*", "model.mtp.*"),
            # The rows of each group of heads stand one under another.
            experts=((".attn.wo_a.weight", ".attn.wo_a.{}.weight", groups),),
        )

    def forward(self, step: StepInputs) -> Tensor:
        """Return the final hidden states, `(T, D)`."""
        streams = self.embed(step.token_ids).unsqueeze(1).repeat(1, self.streams, 1)
        for layer in self.layers:
            streams = layer(streams, step)
        return self.norm(self.last(streams))


class FourthLayer:
    """One layer: attention and experts, each between streams that are gathered and scattered."""

    def __init__(
        self, build: LayerBuilder, given: Fourth, layer: Layer, path: str, entries: int | None, index: int | None
    ) -> None:
        self.around_attention = Streams(build, given, f"{path}.hc_attn")
        self.attention_norm = build.rms_norm(given.hidden_size, given.eps, f"{path}.attn_norm")
        self.attention = FourthAttention(build, given, layer, f"{path}.attn", entries, index)
        self.around_experts = Streams(build, given, f"{path}.hc_ffn")
        self.experts_norm = build.rms_norm(given.hidden_size, given.eps, f"{path}.ffn_norm")
        self.experts = FourthExperts(build, given, f"{path}.ffn", table=layer.table)

    def __call__(self, streams: Tensor, step: StepInputs) -> Tensor:
        """`(T, S, D) -> (T, S, D)`."""
        hidden, after, mix = self.around_attention.gather(streams)
        out = self.attention(self.attention_norm(hidden), step)
        streams = self.around_attention.scatter(streams, out, after, mix)
        hidden, after, mix = self.around_experts.gather(streams)
        out = self.experts(self.experts_norm(hidden), step)
        return self.around_experts.scatter(streams, out, after, mix)


def _picks(layer: Layer) -> bool:
    return layer.compression is not None and layer.compression.picks is not None
