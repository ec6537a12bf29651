"""The configuration of the strange family. Torch-free."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from core.api import ModelShape, RopeConfig, WeightShape, config_int, config_number, rope_config


@dataclass(frozen=True)
class StrangeConfig:
    vocab_size: int
    hidden_size: int
    inner_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    norm_eps: float
    rope: RopeConfig

    @staticmethod
    def read(config: dict[str, Any]) -> StrangeConfig:
        head_dim = config_int(config, "head_dim")
        return StrangeConfig(
            vocab_size=config_int(config, "vocab_size"),
            hidden_size=config_int(config, "hidden_size"),
            inner_size=config_int(config, "intermediate_size"),
            num_layers=config_int(config, "num_hidden_layers"),
            num_heads=config_int(config, "num_attention_heads"),
            num_kv_heads=config_int(config, "num_key_value_heads"),
            head_dim=head_dim,
            norm_eps=config_number(config, "layer_norm_eps", 1e-5),
            rope=rope_config(config, head_dim),
        )

    @property
    def slopes(self) -> list[float]:
        """Factor of the distance in the scores of each head."""
        return [2.0 ** (-8.0 * (head + 1) / self.num_heads) for head in range(self.num_heads)]


def shape(config: dict[str, Any]) -> ModelShape:
    c = StrangeConfig.read(config)
    heads = (
        "(num_attention_heads + 2 * num_key_value_heads) * head_dim",
        (c.num_heads + 2 * c.num_kv_heads) * c.head_dim,
    )
    return ModelShape(
        vocab_size=c.vocab_size,
        max_positions=c.rope.context,
        num_layers=c.num_layers,
        hidden_size=c.hidden_size,
        num_heads=c.num_heads,
        num_kv_heads=c.num_kv_heads,
        head_dim=c.head_dim,
        features=frozenset({"alibi"}),
        dtype="float32",
        ropes=(c.rope,),
        weights=(
            WeightShape(name="h.{}.query_key_value.weight", dims=(heads, ("hidden_size", c.hidden_size))),
            WeightShape(name="h.{}.norm.weight", dims=(("hidden_size", c.hidden_size),)),
        ),
    )
