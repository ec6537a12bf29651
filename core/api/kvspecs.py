"""KV specs and managers: what an attention layer keeps of the past, and who decides which blocks are still needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, slots=True)
class KVSpec:
    """Requirement of a layer on the KV cache.

    Attributes:
        kind: Names the manager: `full`, `sliding`, `chunked`, or a kind that the attention backend's descriptor brings.
        window: For `sliding`: a query at position p sees positions > p - window. For `chunked`: a query sees the
            positions of its own chunk of so many tokens.
    """

    kind: str = "full"
    window: int | None = None


class KVManager(Protocol):
    """Decides for the layers of a cache group which leading blocks of a row are never read again. Engine side, numpy.

    Groups of equal specs share a manager. A prefix of n full blocks is found in the cache where every group has those
    from `dead_blocks(n * block_size)` on, so what it returns must not shrink while `computed` grows.
    """

    def __init__(self, specs: Sequence[KVSpec], block_size: int) -> None: ...

    def dead_blocks(self, computed: np.ndarray) -> np.ndarray:
        """Return per row how many leading blocks no query at position `computed` or later reads, `(n,)` integers.

        Args:
            computed: `(n,)` int32, tokens of each row whose keys and values are written or scheduled.
        """
        ...
