"""Sizes of tiles to try: kernel of a table -> size -> values. Sizes that are not named stay as the table has them."""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence

Candidates = Mapping[str, Mapping[str, Sequence[int]]]

_TILES, _LANES = (1024, 2048, 4096, 8192), (4, 8, 16)
_WARPS, _STAGES = (4, 8), (2, 3, 4)
_DOTS = {"n": (64, 128, 256), "warps": _WARPS, "stages": _STAGES}

OPS: Candidates = types.MappingProxyType(
    {
        "norm": {"tile": (*_TILES, 16384), "lane": (*_LANES, 32)},
        "activation": {"tile": _TILES, "lane": _LANES},
        "rotary": {"tile": (512, *_TILES), "lane": _LANES},
        "embedding": {"tile": _TILES, "lane": _LANES},
        "argmax": {"tile": _TILES, "section": (4096, 8192, 16384, 32768), "lane": _LANES},
        "draw": {"tile": (*_TILES, 16384), "lane": (*_LANES, 32)},
        "logits": {"tile": _TILES, "lane": _LANES},
    }
)

# Float8 in runs of 128 inputs needs its `k8`; which rows are few decides what a token's numbers are.
PRODUCTS: Candidates = types.MappingProxyType(
    {
        "few": {"n": (32, 64, 128), "k": (64, 128), "warps": _WARPS, "stages": _STAGES},
        "many": {"m": (64, 128), **_DOTS},
        "scaled": {"k8": (128, 256), **_DOTS},
        "merge": {"n": (128, 256, 512, 1024), "warps": (2, 4, 8)},
        "lookup": {"n": (1, 2, 4, 8), "k": (128, 256, 512), "warps": (2, 4, 8)},
    }
)

EXPERTS: Candidates = types.MappingProxyType(
    {
        "route": {"tile": (1024, 2048, 4096), "lane": _LANES},
        "sort": {"block": (512, 1024, 2048), "tile": (4096, 8192, 16384)},
        "multiply": {"m": (16, 64, 128), "k": (32, 64), **_DOTS},
        "stored": {"m": (16, 64, 128), "n": (64, 128), "warps": _WARPS, "stages": _STAGES},
        "scaled": {"k8": (128, 256), **_DOTS},
        "total": {"tile": _TILES, "lane": _LANES},
    }
)

# As many stages as load a tile of keys or two ahead, which waits for the numbers of its blocks.
_AHEAD = {"warps": _WARPS, "stages": (1, 2, 3, 5)}
_PROMPT = {"m": (64, 128), "n": (32, 64, 128), **_AHEAD}
_FEW = {"n": (32, 64, 128), "split": (256, 512), **_AHEAD}

ATTENTION: Candidates = types.MappingProxyType(
    {f"prompt_{size}": _PROMPT for size in (128, 256, 512, 1024)} | {f"few_{size}": _FEW for size in (256, 512, 1024)}
)
