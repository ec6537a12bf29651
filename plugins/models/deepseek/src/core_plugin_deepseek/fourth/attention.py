"""Attention of one layer. Shapes: T tokens of a step; D hidden size; H heads of size d."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core_plugin_deepseek.fourth.compressor import Compressor
from core_plugin_deepseek.fourth.rotation import Rotation
from core_plugin_deepseek.fourth.window import joined, window_attention

if TYPE_CHECKING:
    from torch import Tensor

    from core.api import LayerBuilder, StepInputs
    from core_plugin_deepseek.fourth.reading import Compression, Fourth, Layer
    from core_plugin_deepseek.fourth.window import Part


class FourthAttention:
    """One softmax over the window, the compressed entries, and a sink for each head.

    Args:
        entries, index: KV layers of its entries, and of the keys of their index.
    """

    def __init__(
        self, build: LayerBuilder, given: Fourth, layer: Layer, path: str, entries: int | None, index: int | None
    ) -> None:
        hidden, size, eps = given.hidden_size, given.head_dim, given.eps
        self.rotate, self.scale = Rotation(build, layer.rope), size**-0.5
        self.down = build.merged_linear(hidden, {"wq_a": given.query_dim, "wkv": size}, path)
        self.query_norm = build.rms_norm(given.query_dim, eps, f"{path}.q_norm")
        self.query = build.linear(given.query_dim, given.heads * size, f"{path}.wq_b")
        self.unit = build.rms_norm(size, eps, f"{path}.unit", weight=False)
        self.norm = build.rms_norm(size, eps, f"{path}.norm")
        self.heads = (-1, given.heads, size)
        self.window = build.state(f"{path}.window", (given.window, size), dtype="compute")
        self.sinks = build.parameter(f"{path}.attn_sink", (given.heads,), dtype="float32")
        self.entries = None
        if layer.compression is not None and entries is not None:
            self.entries = Entries(build, given, layer.compression, path, entries, index)
        mixed = given.groups * given.group_dim
        self.mix = build.block_linear(given.heads * size, {"": mixed}, f"{path}.wo_a", given.groups)
        self.output = build.linear(mixed, hidden, f"{path}.wo_b")

    def __call__(self, hidden: Tensor, step: StepInputs) -> Tensor:
        """`(T, D) -> (T, D)`."""
        latent, keys = self.down(hidden).split_with_sizes(self.down.splits, dim=1)
        latent = self.query_norm(latent.contiguous())
        q = self.rotate(step.positions, self.unit(self.query(latent).view(self.heads)))
        keys = self.rotate(step.positions, self.norm(keys.contiguous()).unsqueeze(1)).squeeze(1)
        parts = [window_attention(q, keys, step.positions, self.window(step), self.scale)]
        if self.entries is not None:
            parts.append(self.entries(q, latent, hidden, self.rotate, step))
        found = joined(parts, self.sinks()).to(hidden.dtype)
        # Keys were rotated, and are values as well: what is left depends on distances alone.
        return self.output(self.mix(self.rotate.back(step.positions, found).flatten(1)))


class Entries:
    """The compressed entries of a layer, and the index that chooses among them."""

    def __init__(
        self, build: LayerBuilder, given: Fourth, compression: Compression, path: str, entries: int, index: int | None
    ) -> None:
        size = given.head_dim
        self.compress = Compressor(build, compression, given.hidden_size, size, given.eps, f"{path}.compressor")
        self.attend = build.compressed_attention(
            entries,
            num_heads=given.heads,
            head_dim=size,
            scale=size**-0.5,
            ratio=compression.ratio,
            picks=compression.picks,
        )
        self.index = None
        if compression.picks is not None and index is not None:
            self.index = Index(build, given, compression, compression.picks, f"{path}.indexer", index)

    def __call__(self, q: Tensor, latent: Tensor, hidden: Tensor, rotate: Rotation, step: StepInputs) -> Part:
        """Return what `q (T, H, d)` finds; `latent` is that of the queries."""
        picked = None if self.index is None else self.index(latent, hidden, rotate, step)
        return self.attend(q, self.compress(hidden, rotate, step), step, picked)


class Index:
    """Chooses the entries that a query sees."""

    def __init__(
        self, build: LayerBuilder, given: Fourth, compression: Compression, picks: int, path: str, kv: int
    ) -> None:
        heads, size = compression.index_heads, compression.index_dim
        self.compress = Compressor(build, compression, given.hidden_size, size, given.eps, f"{path}.compressor")
        self.query = build.linear(given.query_dim, heads * size, f"{path}.wq_b")
        self.weights = build.linear(given.hidden_size, heads, f"{path}.weights_proj")
        self.heads, self.factor = (-1, heads, size), heads**-0.5
        self.pick = build.picker(
            kv, num_heads=heads, key_dim=size, scale=size**-0.5, picks=picks, ratio=compression.ratio
        )

    def __call__(self, latent: Tensor, hidden: Tensor, rotate: Rotation, step: StepInputs) -> Tensor | None:
        """Return the picked entries, `(T, picks)` int32, or None: all."""
        q = rotate(step.positions, self.query(latent).view(self.heads))
        weights = self.weights(hidden).float() * self.factor
        return self.pick(q, self.compress(hidden, rotate, step), weights, step)
