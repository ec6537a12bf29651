"""Lightning attention: linear attention, decaying by a slope of each head. T tokens; D hidden size."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core_plugin_decoder.ranks import share_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from core.api import LayerBuilder, StepInputs

_EPS = 1e-6


class LightningAttention:
    """`out(sigmoid(output_gate(x)) * norm(attention(silu(qkv_proj(x)))))`.

    Args:
        size: Of a head.
        slopes: Of each head: what a token gave has decayed by `exp(-slope * distance)`.
    """

    def __init__(
        self, build: LayerBuilder, hidden_size: int, path: str, size: int, slopes: Sequence[float], activation: str
    ) -> None:
        wide, share = len(slopes) * size, share_of(build, len(slopes), len(slopes))
        heads, out = share.heads, share.out
        parts = dict.fromkeys(("q", "k", "v"), wide)
        units = dict.fromkeys(parts, size)
        self.project = build.merged_linear(
            hidden_size, parts, path, shard=out, fused="qkv_proj", units=units, split="interleaved"
        )
        self.activation, self.sigmoid = build.activation(activation), build.activation("sigmoid")
        self.heads, self.view = heads, (-1, 3 * heads, size)
        self.matrix = build.state(f"{path}.matrix", (heads, size, size))
        self.attend = build.operation("linear_attention", key_dim=size, value_dim=size)
        self.norm = build.rms_norm(wide, _EPS, f"{path}.norm", shard=out, unit=size)
        self.gate = build.linear(hidden_size, wide, f"{path}.output_gate", shard=out)
        self.out = build.linear(wide, hidden_size, f"{path}.out_proj", shard=share.into)
        self.slopes = share.of(tuple(slopes))
        self._decay: Tensor | None = None

    def __call__(self, x: Tensor, step: StepInputs) -> Tensor:
        """`(T, D) -> (T, D)`."""
        q, k, v = self.activation(self.project(x)).view(self.view).split_with_sizes((self.heads,) * 3, dim=1)
        attended = self.attend(q, k, v, self._decays(q), None, self.matrix(step), 1.0)
        return self.out(self.sigmoid(self.gate(x)) * self.norm(attended.flatten(1)))

    def _decays(self, q: Tensor) -> Tensor:
        """Return the logarithm of how much each head keeps from token to token, `(T, heads)` float32."""
        if self._decay is None or self._decay.device != q.device:
            from torch import float32, tensor

            self._decay = tensor(self.slopes, dtype=float32, device=q.device).neg()
        # Zeros by a product: programs without torch have it.
        return q[:, :, 0].float() * 0.0 + self._decay
