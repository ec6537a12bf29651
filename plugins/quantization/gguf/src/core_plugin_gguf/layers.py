"""How many layers a file has, and how many heads each of them. Torch-free."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.api.configs import MOST_LAYERS
from core_plugin_gguf.faults import damaged

if TYPE_CHECKING:
    from core_plugin_gguf.header import Header


def layer_count(header: Header, arch: str) -> int:
    """Return the number of layers. Raises `CheckpointError` CORE-M141: the file has none or too many.

    Blocks behind the last layer only predict further tokens: they are left out.
    """
    blocks = header.positive_integer(f"{arch}.block_count", most=MOST_LAYERS)
    layers = blocks - (header.integer(f"{arch}.nextn_predict_layers") or 0)
    if not 0 < layers <= blocks:
        raise damaged(header.path, f"{arch}.nextn_predict_layers leaves {layers} of {blocks} blocks")
    return layers


def by_layer(header: Header, arch: str, name: str, default: int | None = None) -> list[int]:
    """Return a number of each layer: a list, or one number for all of them.

    Raises:
        CheckpointError: CORE-M141, it is missing, below 0, no whole number, or given for another number of layers.
    """
    key, layers = f"{arch}.{name}", layer_count(header, arch)
    if not header.is_array(key):
        return [header.positive_integer(key, default)] * layers
    values = (header.numbers(key) or [])[:layers]
    if len(values) != layers or not all(isinstance(one, int) and one >= 0 for one in values):
        raise damaged(header.path, f"{key} does not give a whole number for each of {layers} layers")
    return [int(one) for one in values]
