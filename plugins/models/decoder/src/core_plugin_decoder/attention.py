"""Attention as a description says. Shapes: T tokens of a step; D hidden size."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from core_plugin_decoder.gating import MixedAttention, Mixer, OutputGate, gate_activation
from core_plugin_decoder.norms import head_norm

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from core.api import LayerBuilder, StepInputs
    from core.api.layers import Attention as Attend
    from core.api.layers import Embedding
    from core_plugin_decoder.description import Attention, Decoder


class SelfAttention:
    """Grouped-query attention with what the description has around it.

    Args:
        path: Of its module.
        index: Of its layer.
        growth: Factor of the queries by position; None for none.
        kv: Of its KV layer; None: the layer's.
    """

    def __init__(
        self,
        decoder: Decoder,
        given: Attention,
        build: LayerBuilder,
        index: int,
        growth: Embedding | None = None,
        kv: int | None = None,
    ) -> None:
        path = f"{decoder.layer_path(index)}.{given.name}"
        share = build.heads(given.heads, given.kv_heads)
        # Keys and values are of equal size, or in this order: another one only changes which of them is which.
        self.places = [given.order.index(name) for name in "qkv"] if given.parts == 3 else [0, 1, 1]
        heads = [share.heads, share.kv_heads, share.kv_heads][: given.parts]
        width = given.value_dim or given.head_dim
        widths = [given.head_dim, given.head_dim, width][: given.parts]
        self.query_heads, self.value_scale = share.heads, given.value_scale
        sizes = (given.heads * given.head_dim, given.kv_heads * given.head_dim, given.kv_heads * width)
        parts = dict(zip(given.projections, sizes[: given.parts]))
        units = dict(zip(parts, widths))
        if given.turns:
            units = {name: size // given.turns for name, size in parts.items()}
        # Each with the heads of its parts, and their sizes.
        self.linears = [
            (
                build.merged_linear(
                    decoder.hidden_size,
                    {name: size for name, (size, _) in some.parts.items()},
                    path,
                    bias=given.bias,
                    shard="out",
                    units={name: unit for name, (_, unit) in some.parts.items()},
                    fused=some.fused,
                    split=some.split,
                ),
                some.heads,
                some.widths,
            )
            for some in _stored(given, {name: (parts[name], units[name]) for name in parts}, heads, widths)
        ]
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
        own_layer = index if kv is None else kv
        self.layer, self.causal = own_layer if given.shares is None else given.shares, decoder.causal
        self.site: dict[str, Any] = {
            "num_heads": share.heads,
            "num_kv_heads": share.kv_heads,
            "head_dim": given.head_dim,
            "scale": given.scale,
            "window": given.window,
        }
        if decoder.causal:
            self.site |= {
                "softcap": given.softcap,
                "sinks": None if given.sinks is None else f"{path}.{given.sinks}",
                "chunk": given.chunk,
                "slopes": None if given.slopes is None else share.of(given.slopes),
                "rooted": given.rooted,
                "shared": given.shares is not None,
                "prefix": path,
            }
        # Rotated last of all, queries and keys may be rotated on their way into the cache.
        last = decoder.causal and growth is None and given.mix is None and not given.rotates_first
        self.handed = {"rope": self.rope} if last and self.rope is not None else {}
        self.attend = self._attend(build, self.layer)
        self.gate = None if given.gate is None else OutputGate(given, build, decoder.hidden_size, path)
        self.query_gate = gate_activation(given, build, path) if given.gated_queries else None
        self.mix, self.mixer = given.mix, None
        if given.mix is not None and decoder.passes > 1:
            self.mixer = Mixer(given.mix, given, build, decoder, index)

    def again(self, build: LayerBuilder, later: int) -> SelfAttention:
        """Return the same projections with keys and values of their own, those of the layer `later` layers behind."""
        other = copy(self)
        if self.mix is not None and self.mixer is not None:
            other.site = {**self.site, "window": self.mix.window}
            other.attend = MixedAttention(self.mixer, self.attend, other._attend(build, self.layer + later))
        else:
            other.attend = self._attend(build, self.layer + later)
        return other

    def _attend(self, build: LayerBuilder, layer: int) -> Attend:
        return build.attention(layer, **self.site) if self.causal else build.encoder_attention(layer, **self.site)

    def __call__(self, hidden: Tensor, step: StepInputs) -> Tensor:
        """`(T, D) -> (T, D)`."""
        split = self._projected(hidden)
        if self.query_gate is not None:
            factors = self.query_gate(split.pop(1).flatten(1))
            return self.output(self._of_parts(split, step) * factors)
        attended = self._of_parts(split, step)
        return self.output(attended if self.gate is None else attended * self.gate(hidden))

    def _of_parts(self, split: Sequence[Tensor], step: StepInputs) -> Tensor:
        """Return the results of all heads, `(T, heads * value_dim)`, from what was projected."""
        if len(split) == 1:
            return self.attend(self._query(split[0], step), None, None, step)
        q, k, v = (split[place] for place in self.places)
        if self.rotates_first:
            q, k = self._rotated(q, k, step)
            q, k = self._normed(q, k)
        else:
            q, k = self._normed(q, k)
            if self.clip_normed is not None:
                q, k, v = (one.clamp(-self.clip_normed, self.clip_normed) for one in (q, k, v))
            if not self.handed:
                q, k = self._rotated(q, k, step)
        if self.norms[2] is not None:
            v = self.norms[2](v)
        if self.value_scale != 1.0:
            v = v * self.value_scale
        if self.growth is not None:
            q = q * self.growth(step.positions).unsqueeze(1)
        return self._attended(q, k, v, step)

    def _attended(self, q: Tensor, k: Tensor, v: Tensor, step: StepInputs) -> Tensor:
        """Return the results of all heads, `(T, heads * value_dim)`."""
        size, width = k.shape[-1], v.shape[-1]
        if width == size:
            return self.attend(q, k, v, step, **self.handed)
        from torch import cat

        # Zeros by a product: programs without torch have it.
        wide = self.attend(q, k, cat((v, k[..., width:] * 0.0), -1), step, **self.handed)
        return wide.view(-1, self.query_heads, size)[..., :width].flatten(1)

    def _projected(self, hidden: Tensor) -> list[Tensor]:
        """Return what is projected, part by part: `(T, heads, head_dim)`, twice `(T, kv_heads, head_dim)`.

        Behind the queries comes their gate, where they have one.
        """
        found: list[Tensor] = []
        for linear, heads, widths in self.linears:
            joined = linear(hidden)
            if self.clip is not None:
                joined = joined.clamp(-self.clip, self.clip)
            found += _by_heads(joined, heads, widths)
        return found

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


@dataclass(frozen=True, slots=True)
class _Stored:
    """Parts of a projection that are one product.

    Attributes:
        parts: Name -> outputs of all heads, and those that stay together.
        heads, widths: Of each part: heads of this rank, and their size.
        fused, split: As in `LayerBuilder.merged_linear`.
    """

    parts: Mapping[str, tuple[int, int]]
    heads: Sequence[int]
    widths: Sequence[int]
    fused: str | None = None
    split: Literal["halves", "interleaved"] = "halves"


def _stored(
    given: Attention, parts: Mapping[str, tuple[int, int]], heads: Sequence[int], widths: Sequence[int]
) -> list[_Stored]:
    """Return the products that make queries, keys and values."""
    if given.fused_kv is None and not given.gated_queries:
        return [_Stored(parts, heads, widths, given.fused, given.split)]
    (name, size), *others = parts.items()
    queries = _Stored({name: size}, heads[:1], widths[:1])
    if given.gated_queries:
        gated = {name: size, f"{name}.gate": size}
        queries = _Stored(gated, [heads[0]] * 2, [widths[0]] * 2, fused=name, split="interleaved")
    if not others:
        return [queries]
    return [queries, _Stored(dict(others), heads[1:], widths[1:], given.fused_kv, given.split)]


def _by_heads(joined: Tensor, heads: Sequence[int], widths: Sequence[int]) -> Sequence[Tensor]:
    """Return the parts of a projection, `(T, heads, width)` each."""
    if len(set(widths)) == 1:
        return joined.view(-1, sum(heads), widths[0]).split_with_sizes(list(heads), dim=1)
    parts = joined.split_with_sizes([count * width for count, width in zip(heads, widths)], dim=1)
    return [part.view(-1, count, width) for part, count, width in zip(parts, heads, widths, strict=True)]
