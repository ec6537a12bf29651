"""Tensors of GGUF files in Hugging Face's vocabulary: what they are called there, and how they are stored here."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from core_plugin_gguf.faults import damaged
from core_plugin_gguf.layers import by_layer, layer_count
from core_plugin_gguf.rows import Pairs, Turns
from core_plugin_gguf.table import ARCHITECTURES

if TYPE_CHECKING:
    from core_plugin_gguf.architecture import Architecture
    from core_plugin_gguf.header import Header, TensorInfo
    from core_plugin_gguf.rows import Order

_FACTS = re.compile(r"rope_(freqs|factors_(short|long))\.weight|blk\.\d+\.attn_rot_embd\.weight")
_INPUT_SCALE = "input_scale"
"""Name of the tensor that the runtime rounds activations with."""

_BLOCK = re.compile(r"blk\.(\d+)\.(.+)")


@dataclass(frozen=True, slots=True)
class Place:
    """One tensor of the model, in a tensor of the file.

    Attributes:
        name: Hugging Face's.
        shape: That it has there.
        first: Row of the file's tensor with which it begins; of one with three dimensions, the entry of the first that
            it is.
        order: Order of its rows in the file; None for Hugging Face's.
        offset: What the converter added to the values, to be taken off again.
        turned: Hugging Face has rows and columns exchanged.
        columns: The order is that of the columns.
        decays: The file has `-exp(value)`.
        keys: Name of the file's tensor with the keys of latent attention, which stand before these values head by head;
            empty: the file's tensor holds all of it.
    """

    name: str
    shape: tuple[int, ...]
    first: int = 0
    order: Order | None = None
    offset: float = 0.0
    turned: bool = False
    columns: bool = False
    decays: bool = False
    keys: str = ""

    @property
    def opened(self) -> bool:
        """Whether blocks must be decoded to give the tensor's values."""
        return self.turned or self.columns or self.decays or bool(self.keys)


@dataclass(frozen=True, slots=True)
class Conventions:
    """How the converter of a file's architecture names and stores tensors.

    Attributes:
        blocks: Module in a block -> Hugging Face's name of it in a layer.
        heads, kv_heads: Heads of queries, and of keys and values, in each layer.
        linear: Layers with a linear layer in the place of attention.
        layers: Number of layers; blocks behind them are left out.
    """

    header: Header
    arch: str
    table: Architecture
    blocks: Mapping[str, str]
    heads: list[int]
    kv_heads: list[int]
    linear: frozenset[int]
    layers: int

    @staticmethod
    def of(header: Header, arch: str, names: Collection[str]) -> Conventions:
        """Return those of a file of an architecture, with tensors of these names."""
        table = ARCHITECTURES[arch]
        blocks = dict(table.blocks)
        for module, further in table.variants.items():
            if f"blk.0.{module}.weight" in names:
                blocks |= further
        layers = layer_count(header, arch)
        heads = by_layer(header, arch, "attention.head_count") if table.attends else [0] * layers
        kv_heads = by_layer(header, arch, "attention.head_count_kv", heads[0]) if table.attends else heads
        linear = frozenset(
            layer for layer in range(layers) if table.linear and f"blk.{layer}.attn_q.weight" not in names
        )
        return Conventions(header, arch, table, blocks, heads, kv_heads, linear, layers)

    def places(self, info: TensorInfo) -> Iterator[Place]:
        """Yield what a tensor of the file holds: nothing, if it is no weight but a fact; usually one tensor.

        One without a translation keeps its name, for the loader to refuse.

        Raises:
            CheckpointError: CORE-M141, its rows do not go with the heads.
        """
        if _FACTS.fullmatch(info.name):
            return
        module, _, kind = self._suffixed(info.name).rpartition(".")
        offset = self.table.norm_offset if info.name.endswith("norm.weight") else 0.0
        if module in self.table.modules:
            path = f"{self.table.modules[module]}.{kind}"
            yield from _stacked(info, path) if "{}" in path else [Place(path, info.shape, offset=offset)]
            return
        match = _BLOCK.fullmatch(module)
        number = int(match[1]) if match is not None else 0
        if number >= self.layers or kind == _INPUT_SCALE:
            return
        layer, module = (self.table.layer.format(number), match[2]) if match else ("", "")
        offset = self.table.norm_offsets.get(module, offset)
        if module in self.table.stacked:
            yield from _stacked(info, f"{layer}.{self.table.stacked[module]}.{kind}")
        elif kind == "scale" and module in self.blocks:
            yield Place(self._named(layer, self.blocks[module], module, kind), info.shape)
        elif module in self.table.joined:
            yield self._joined(info, layer, *self.table.joined[module])
        elif any(module == keys for keys, _ in self.table.joined.values()):
            return  # a part of what its values are a part of, too
        elif module in self.table.split:
            yield from self._split(info, [f"{layer}.{part}.{kind}" for part in self.table.split[module]], number)
        elif module == "attn_output" and match is not None and number in self.linear:
            yield Place(f"{layer}.{self.table.linear}.{kind}", info.shape)
        elif module in self.table.layouts:
            yield from self._laid(info, layer, module, kind)
        elif module in self.blocks:
            turned = module in self.table.turned and len(info.shape) == 2
            shape = self._shape(info, module, kind)
            name = self._named(layer, self.blocks[module], module, kind)
            order, decays = self._order(info, module, number), module in self.table.decays
            yield Place(name, shape, 0, order, offset, turned, decays=decays)
        else:
            yield Place(info.name, info.shape)

    def _suffixed(self, name: str) -> str:
        match = _BLOCK.fullmatch(name)
        lost = match is not None and match[2] in self.table.unsuffixed | self.table.bare
        return f"{name}.weight" if lost else name

    def _named(self, layer: str, path: str, module: str, kind: str) -> str:
        """Return Hugging Face's name of a tensor of the module `path` in a layer."""
        return f"{layer}.{path}" if module in self.table.bare else f"{layer}.{path}.{kind}"

    def _shape(self, info: TensorInfo, module: str, kind: str) -> tuple[int, ...]:
        shape = info.shape
        if kind == "weight" and module in self.table.shapes:
            return self.table.shapes[module](shape)
        if module in self.table.rows and len(shape) == 1:
            return (1, *shape)
        return shape[::-1] if module in self.table.turned and len(shape) == 2 else shape

    def _laid(self, info: TensorInfo, layer: str, module: str, kind: str) -> Iterator[Place]:
        """Yield the modules of a tensor whose rows or columns are stored in an order of their own."""
        layout = self.table.layouts[module](self.header, self.arch)
        count = info.shape[-1 if layout.columns else 0]
        parts = sum(size for _, size in layout.parts) or count
        if parts != count or not (layout.order is None or layout.order.fits(count)):
            what = "columns" if layout.columns else "rows"
            raise damaged(self.header.path, f"the {count} {what} of tensor {info.name} do not go with its metadata")
        decays = module in self.table.decays
        if not layout.parts:
            name, shape = self._named(layer, self.blocks[module], module, kind), self._shape(info, module, kind)
            yield Place(name, shape, 0, layout.order, columns=layout.columns, decays=decays)
        first = 0
        for path, size in layout.parts:
            yield Place(f"{layer}.{path}.{kind}", (size, *info.shape[1:]), first, layout.order)
            first += size

    def _order(self, info: TensorInfo, module: str, layer: int) -> Order | None:
        rows = info.shape[0]
        if module in self.table.paired:
            heads = (self.kv_heads if module == "attn_k" else self.heads)[layer]
            if not heads or rows % (2 * heads):
                raise damaged(
                    self.header.path, f"the {rows} rows of tensor {info.name} are not pairs for {heads} heads"
                )
            return Pairs(heads)
        if module != self.table.by_turns:
            return None
        self._size(info, layer)
        return Turns(self.heads[layer], self.kv_heads[layer])

    def _split(self, info: TensorInfo, names: list[str], layer: int) -> Iterator[Place]:
        size, first = self._size(info, layer), 0
        counts = (self.heads[layer], self.kv_heads[layer], self.kv_heads[layer])
        for name, heads in zip(names, counts, strict=True):
            yield Place(name, (heads * size, *info.shape[1:]), first)
            first += heads * size

    def _joined(self, info: TensorInfo, layer: str, keys: str, module: str) -> Place:
        """Return keys and values of latent attention; `info` has the values, `(heads, value, latent)`."""
        if len(info.shape) != 3:
            raise damaged(self.header.path, f"tensor {info.name} has shape {info.shape}, not heads of values")
        heads, size, latent = info.shape
        rotary = self.header.positive_integer(f"{self.arch}.rope.dimension_count")
        size += self.header.positive_integer(f"{self.arch}.{self.table.head}") - rotary
        block = info.name.rpartition(".")[0].rpartition(".")[0]
        return Place(f"{layer}.{module}.weight", (heads * size, latent), keys=f"{block}.{keys}.weight")

    def _size(self, info: TensorInfo, layer: int) -> int:
        """Return the rows of a head in a fused projection."""
        queries, keys = self.heads[layer], self.kv_heads[layer]
        heads = queries + 2 * keys
        if not keys or info.shape[0] % heads or queries % keys:
            what = f"the {info.shape[0]} rows of tensor {info.name} are not queries, keys and values of {heads} heads"
            raise damaged(self.header.path, what)
        return info.shape[0] // heads


def _stacked(info: TensorInfo, name: str) -> Iterator[Place]:
    for row in range(info.shape[0]):
        yield Place(name.format(row), info.shape[1:], row)
