"""Which leading blocks of a row are never read again: the registry from KV specs to managers, one per cache group.

A cache group is a set of layers that share a block table. All groups take their blocks from one pool, and a row's
*column* is one block of each group: what a row owns grows by columns, what it gives back differs by group.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, cast

import numpy as np

from core.api.errors import PluginError
from core.api.kvspecs import KVManager, KVSpec

if TYPE_CHECKING:
    from core.api.descriptors import AttentionSpec
    from core.config.resolved import EngineConfig
    from core.plugins.active import ActivePlugins

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


class ChunkedManager:
    """A query at position p sees the positions of its own chunk, from p // chunk * chunk on."""

    def __init__(self, specs: Sequence[KVSpec], block_size: int) -> None:
        self._chunks = [spec.window or 1 for spec in specs]
        self._block_size = block_size

    def dead_blocks(self, computed: np.ndarray) -> np.ndarray:
        """Return how many blocks lie wholly before the chunk of the next query."""
        first_seen = np.minimum.reduce([computed // chunk * chunk for chunk in self._chunks])
        dead: np.ndarray = first_seen // self._block_size
        return dead


MANAGERS: Mapping[str, ManagerFactory] = types.MappingProxyType(
    {"full": FullManager, "sliding": SlidingManager, "chunked": ChunkedManager}
)
"""Kinds of KV spec that core handles; a backend's descriptor may bring others."""


class KVManagers:
    """The managers of one model's cache groups.

    Args:
        managers: One per group, in order; groups with equal specs share one.

    Attributes:
        groups: Number of cache groups.
        freeing: Managers that can give blocks back before a request ends, each with the numbers of its groups.
    """

    def __init__(self, managers: Sequence[KVManager], block_size: int) -> None:
        self.groups, self.block_size = len(managers), block_size
        self._managers = managers
        owned: dict[int, list[int]] = {}
        for group, manager in enumerate(managers):
            if not isinstance(manager, FullManager):
                owned.setdefault(id(manager), []).append(group)
        self.freeing = tuple((managers[groups[0]], np.array(groups, np.intp)) for groups in owned.values())

    @property
    def frees(self) -> bool:
        """Whether any block can ever be given back before its request ends."""
        return bool(self.freeing)

    def dead_columns(self, columns: int) -> np.ndarray:
        """Return the leading dead columns of each group behind 0, 1, ... `columns` of them, `(groups, columns + 1)`."""
        computed = np.arange(columns + 1, dtype=np.int32) * self.block_size
        dead = np.zeros((self.groups, columns + 1), np.int32)
        for manager, groups in self.freeing:
            dead[groups] = manager.dead_blocks(computed)
        return dead

    def most_blocks(self, columns: int, chunk: int) -> np.ndarray:
        """Return the most blocks that a row of 0, 1, ... `columns` columns holds at once, `(columns + 1,)`.

        Args:
            chunk: Most tokens that the row computes in one step. Tokens of steps in flight, which are not given back
                either, are fewer than those of the longest chunk, after which a row computes one by one.
        """
        count = np.arange(columns + 1, dtype=np.int32)
        held = self.groups * count.astype(np.int64)
        # Before a step that just reaches into the last column, the row has computed this many tokens at least.
        computed = np.maximum((count - 1) * self.block_size - chunk, 0)
        for manager, groups in self.freeing:
            held -= len(groups) * manager.dead_blocks(computed)
        most: np.ndarray = np.maximum.accumulate(held)
        return most


def managers_for(
    groups: Sequence[KVSpec], block_size: int, further: Mapping[str, ManagerFactory] = types.MappingProxyType({})
) -> KVManagers:
    """Return the managers of a model's cache groups.

    Args:
        groups: What the layers of each group keep.
        further: Managers of the attention backend, by kind; they come before core's.

    Raises:
        PluginError: CORE-P109, nobody manages a kind.
    """
    known = {**MANAGERS, **further}
    made: dict[KVSpec, KVManager] = {}
    for spec in groups:
        if spec.kind not in known:
            raise PluginError(
                "CORE-P109",
                f"the attention backend reports a KV spec of kind '{spec.kind}', which nothing manages; "
                f"managed: {', '.join(sorted(known))}.",
                hint="Its descriptor must name a manager in kv_managers.",
            )
        if spec not in made:
            made[spec] = known[spec.kind]([spec], block_size)
    return KVManagers([made[spec] for spec in groups], block_size)


def planned_managers(config: EngineConfig, groups: Sequence[KVSpec], active: ActivePlugins) -> KVManagers:
    """Return the managers of `groups`; the plan's attention backend may bring its own. Raises as `managers_for`."""
    planned = config.plan.one("core.attention_backends")
    if planned is None:
        return managers_for(groups, config.block_size)
    paths = cast("AttentionSpec", active.spec("core.attention_backends")).kv_managers
    own = {kind: active.load(planned, path) for kind, path in paths.items()}
    return managers_for(groups, config.block_size, own)
