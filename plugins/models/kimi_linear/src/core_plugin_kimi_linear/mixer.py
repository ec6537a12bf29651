"""Kimi Delta Attention. Shapes: T tokens of a step; D hidden size; H heads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core_plugin_decoder.delta import Decay, DeltaRule

if TYPE_CHECKING:
    from core_plugin_decoder.delta import DeltaSizes
    from torch import Tensor

    from core.api import LayerBuilder, StepInputs

_CONVOLUTIONS = ("q_conv1d", "k_conv1d", "v_conv1d")


class KimiDelta:
    """Projections, a delta rule in which each dimension of the keys decays on its own, and gates behind its norm."""

    def __init__(self, build: LayerBuilder, hidden_size: int, path: str, sizes: DeltaSizes) -> None:
        size, width, share = sizes.value_dim, sizes.values, sizes.shared(build)
        # What gates and steps are made of is whole on each rank: one unit, of which each has a copy.
        units = {"q_proj": sizes.key_dim, "k_proj": sizes.key_dim, "v_proj": size, "f_a_proj": size, "g_a_proj": size}
        parts = {
            "q_proj": width,
            "k_proj": width,
            "v_proj": width,
            "f_a_proj": size,
            "g_a_proj": size,
            "b_proj": sizes.heads,
        }
        self.project = build.merged_linear(hidden_size, parts, path, shard=share.out, units=units)
        self.parts = (sizes.own(share).channels, size, size, share.heads)
        self.steps = build.linear(size, width, f"{path}.f_b_proj", shard=share.out)
        self.gates = build.linear(size, width, f"{path}.g_b_proj", shard=share.out)
        self.decay = Decay(build, path, (1, 1, sizes.heads, 1), share, sizes.key_dim)
        self.rule = DeltaRule(build, sizes, path, _CONVOLUTIONS, "o_norm")
        self.sigmoid = build.activation("sigmoid")
        self.out = build.linear(width, hidden_size, f"{path}.o_proj", shard=share.into)

    def __call__(self, x: Tensor, step: StepInputs) -> Tensor:
        """`(T, D) -> (T, D)`."""
        mixed, steps, gates, beta = self.project(x).split_with_sizes(self.parts, dim=1)
        decay = self.decay(self.steps(steps.contiguous()))
        attended = self.rule(mixed, decay, beta.float().sigmoid(), step)
        return self.out(attended.flatten(1) * self.sigmoid(self.gates(gates.contiguous())))
