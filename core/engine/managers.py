"""Which leading blocks of a row are never read again: the registry from KV specs to managers.

All layers share a row's block table, so a block is given back only when every layer is done with it.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from core.api.errors import PluginError
from core.api.kvspecs import KVManager, KVSpec

ManagerFactory = Callable[[Sequence[KVSpec], int], KVManager]


class FullManager:
    """Every token is read to the end."""

    def __init__(self, specs: Sequence[KVSpec], block_size: int) -> None: ...

    def dead_blocks(self, computed: np.ndarray) -> np.ndarray:
        """Return zeros."""
        return np.zeros_like(computed)


class SlidingManager:
    """A query at position p sees positions > p - window; the widest window decides."""

    def __init__(self, specs: Sequence[KVSpec], block_size: int) -> None:
        self._window = max(spec.window or 1 for spec in specs)
        self._block_size = block_size

    def dead_blocks(self, computed: np.ndarray) -> np.ndarray:
        """Return how many blocks lie wholly before the first position that the next query sees."""
        first_seen = np.maximum(computed - self._window + 1, 0)
        dead: np.ndarray = first_seen // self._block_size
        return dead


MANAGERS: Mapping[str, ManagerFactory] = types.MappingProxyType({"full": FullManager, "sliding": SlidingManager})
"""Kinds of KV spec that core handles; a backend's descriptor may bring others."""


class KVManagers:
    """The managers of one model.

    Attributes:
        frees: Whether any block can ever be given back before its request ends.
    """

    def __init__(self, managers: Sequence[KVManager]) -> None:
        self._managers = managers
        self.frees = bool(managers) and not any(isinstance(manager, FullManager) for manager in managers)

    def dead_blocks(self, computed: np.ndarray) -> np.ndarray:
        """Return per row the leading blocks that no layer reads any more; see `KVManager.dead_blocks`."""
        dead: np.ndarray = np.minimum.reduce([manager.dead_blocks(computed) for manager in self._managers])
        return dead


def managers_for(
    specs: Sequence[KVSpec], block_size: int, further: Mapping[str, ManagerFactory] = types.MappingProxyType({})
) -> KVManagers:
    """Return the managers for a model's KV specs, one for each kind.

    Args:
        further: Managers of the attention backend, by kind; they come before core's.

    Raises:
        PluginError: CORE-P109, nobody manages a kind.
    """
    known = {**MANAGERS, **further}
    kinds: dict[str, list[KVSpec]] = {}
    for spec in specs:
        kinds.setdefault(spec.kind, []).append(spec)
    for kind in kinds:
        if kind not in known:
            raise PluginError(
                "CORE-P109",
                f"the attention backend reports a KV spec of kind '{kind}', which nothing manages; "
                f"managed: {', '.join(sorted(known))}.",
                hint="Its descriptor must name a manager in kv_managers.",
            )
    return KVManagers([known[kind](group, block_size) for kind, group in kinds.items()])
