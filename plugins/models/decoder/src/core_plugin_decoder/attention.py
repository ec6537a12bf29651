"""Attention as a description says. Shapes: T tokens of a step; D hidden size."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core_plugin_decoder.norms import head_norm

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from core.api import LayerBuilder, StepInputs
    from core.api.models import Embedding
    from core_plugin_decoder.description import Attention, Decoder


class SelfAttention:
    """Grouped-query attention with what the description has around it.

    Args:
        path: Of its module.
        index: Of its layer.
        growth: Factor of the queries by position; None for none.
    """

    def __init__(
        self, decoder: Decoder, given: Attention, build: LayerBuilder, index: int, growth: Embedding | None = None
    ) -> None:
        path = f"{decoder.layer_path(index)}.{given.name}"
        share = build.heads(given.heads, given.kv_heads)
        # Keys and values are of equal size, or in this order: another one only changes which of them is which.
        self.places = [given.order.index(name) for name in "qkv"] if given.parts == 3 else [0, 1, 1]
        self.heads = [share.heads, share.kv_heads, share.kv_heads][: given.parts]
        width = given.value_dim or given.head_dim
        self.widths = [given.head_dim, given.head_dim, width][: given.parts]
        self.value_scale = given.value_scale
        sizes = (given.heads * given.head_dim, given.kv_heads * given.head_dim, given.kv_heads * width)
        parts = dict(zip(given.projections, sizes[: given.parts]))
        units = dict(zip(parts, self.widths))
        self.qkv = build.merged_linear(
            decoder.hidden_size,
            parts,
            path,
            bias=given.bias,
            shard="out",
            units={name: size // given.turns for name, size in parts.items()} if given.turns else units,
            fused=given.fused,
            split=given.split,
        )
        self.output = build.linear(
            given.heads * width, decoder.hidden_size, f"{path}.{given.output}", bias=given.output_bias, shard="in"
        )
        counts = (given.heads, given.kv_heads, given.kv_heads)
        own = (given.q_norm, given.k_norm, given.v_norm) if given.shares is None else (given.q_norm, None, None)
        self.norms = [
            None if norm is None else head_norm(norm, build, path, count, given.head_dim)
            for norm, count in zip(own, counts, strict=True)
        ]
        self.clip = None if given.clips_normed else given.clip
        self.clip_normed = given.clip if given.clips_normed else None
        self.growth, self.rotates_first = growth, given.rotates_first
        self.rope = None if given.rope is None else build.rope(given.rope)
        if decoder.causal:
            self.attend = build.attention(
                index if given.shares is None else given.shares,
                num_heads=share.heads,
                num_kv_heads=share.kv_heads,
                head_dim=given.head_dim,
                scale=given.scale,
                window=given.window,
                softcap=given.softcap,
                sinks=None if given.sinks is None else f"{path}.{given.sinks}",
                chunk=given.chunk,
                slopes=None if given.slopes is None else share.of(given.slopes),
                shared=given.shares is not None,
            )
        else:
            self.attend = build.encoder_attention(
                index,
                num_heads=share.heads,
                num_kv_heads=share.kv_heads,
                head_dim=given.head_dim,
                scale=given.scale,
                window=given.window,
            )

    def __call__(self, hidden: Tensor, step: StepInputs) -> Tensor:
        """`(T, D) -> (T, D)`."""
        joined = self.qkv(hidden)
        if self.clip is not None:
            joined = joined.clamp(-self.clip, self.clip)
        split = self._by_heads(joined)
        if len(split) == 1:
            return self.output(self.attend(self._query(split[0], step), None, None, step))
        q, k, v = (split[place] for place in self.places)
        if self.rotates_first:
            q, k = self._rotated(q, k, step)
            q, k = self._normed(q, k)
        else:
            q, k = self._normed(q, k)
            if self.clip_normed is not None:
                q, k, v = (one.clamp(-self.clip_normed, self.clip_normed) for one in (q, k, v))
            q, k = self._rotated(q, k, step)
        if self.norms[2] is not None:
            v = self.norms[2](v)
        if self.value_scale != 1.0:
            v = v * self.value_scale
        if self.growth is not None:
            q = q * self.growth(step.positions).unsqueeze(1)
        return self.output(self._attended(q, k, v, step))

    def _attended(self, q: Tensor, k: Tensor, v: Tensor, step: StepInputs) -> Tensor:
        """Return the results of all heads, `(T, heads * value_dim)`."""
        size, width = k.shape[-1], v.shape[-1]
        if width == size:
            return self.attend(q, k, v, step)
        from torch import cat

        # Zeros by a product: programs without torch have it.
        wide = self.attend(q, k, cat((v, k[..., width:] * 0.0), -1), step)
        return wide.view(-1, self.heads[0], size)[..., :width].flatten(1)

    def _by_heads(self, joined: Tensor) -> Sequence[Tensor]:
        """Return `(T, heads, head_dim)`, twice `(T, kv_heads, head_dim)`; or the first of them."""
        if len(set(self.widths)) == 1:
            return joined.view(-1, sum(self.heads), self.widths[0]).split_with_sizes(self.heads, dim=1)
        parts = joined.split_with_sizes([count * width for count, width in zip(self.heads, self.widths)], dim=1)
        return [part.view(-1, count, width) for part, count, width in zip(parts, self.heads, self.widths, strict=True)]

    def _query(self, q: Tensor, step: StepInputs) -> Tensor:
        """Return the queries of a layer that has no keys."""
        none = q[:, :0]
        if self.rotates_first:
            q = self._normed(self._rotated(q, none, step)[0], none)[0]
        else:
            q = self._rotated(self._normed(q, none)[0], none, step)[0]
        return q if self.growth is None else q * self.growth(step.positions).unsqueeze(1)

    def _normed(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        q_norm, k_norm, _ = self.norms
        return q if q_norm is None else q_norm(q), k if k_norm is None else k_norm(k)

    def _rotated(self, q: Tensor, k: Tensor, step: StepInputs) -> tuple[Tensor, Tensor]:
        return (q, k) if self.rope is None else self.rope(step.positions, q, k)
