"""How many layers a file has. Torch-free."""

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
