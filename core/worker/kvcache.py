"""The KV cache of a model: its groups, its size, and the memory of its layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from core.engine.managers import planned_managers
from core.engine.step_budget import Limits
from core.engine.tasks.halves import engine_half
from core.worker.allocate import zeros
from core.worker.grouping import CacheGroups, grouped, together
from core.worker.loader import kv_layouts
from core.worker.memory import KVBudget, KVDemand, holds_all, plan_kv

if TYPE_CHECKING:
    from torch import Tensor

    from core.api.platform import MemorySnapshot
    from core.config.resolved import EngineConfig
    from core.layers.attention import CachedAttention
    from core.plugins.active import ActivePlugins
    from core.worker.loader import LoadedModel


@dataclass(frozen=True, slots=True)
class CachePlan:
    """How the cache of a model will look.

    Attributes:
        attentions: Its attention layers, by layer; `groups` names them by their places here.
    """

    attentions: Sequence[CachedAttention]
    groups: CacheGroups
    budget: KVBudget

    @property
    def layers(self) -> list[frozenset[int]]:
        """The KV layers of each group."""
        return [frozenset(self.attentions[place].site.layer for place in group.layers) for group in self.groups.groups]

    def allocate(self, device: torch.device, *, apart: bool) -> list[Tensor]:
        """Allocate the buffers and bind every layer to its own and to its group; return the buffers.

        Args:
            apart: Whether the device has memory of its own.
        """
        blocks, layouts = self.budget.num_blocks, self.groups.buffers
        # Ordinary tensors, not inference tensors: a connector may write them from a thread of its own.
        with torch.inference_mode(False):
            caches = [zeros((blocks, *one.block_shape), one.dtype, device, apart=apart) for one in layouts]
        for number, group in enumerate(self.groups.groups):
            for place, cache in zip(group.layers, caches):
                self.attentions[place].kv, self.attentions[place].group = cache, number
        return caches


def plan_cache(
    config: EngineConfig, loaded: LoadedModel, active: ActivePlugins, memory: MemorySnapshot, *, unread: int = 0
) -> CachePlan:
    """Decide groups and size of the cache of a model.

    Args:
        memory: As it is now.
        unread: Bytes that weights and states will take, and do not yet.

    Raises:
        EngineError, ConfigError: As `plan_kv`.
        PluginError: CORE-P109, nobody manages a kind that the attention backend reports.
    """
    found = kv_layouts(loaded)
    layers = [(spec, layout) for _, spec, layout in found]
    groups = whole = together(layers)
    demand = one_table = _demand(config, whole, active)
    if len({spec for spec, _ in layers}) > 1 and not holds_all(config.options.kv, one_table, memory, unread=unread):
        groups = grouped(layers)
        demand = _demand(config, groups, active)
    budget = plan_kv(config.options.kv, demand, memory, unread=unread)
    note = groups.describe()
    if len(groups.groups) > 1:
        alone = replace(budget, num_blocks=budget.num_bytes // whole.bytes_per_block)
        note += f": {budget.requests(demand)} requests of {budget.max_model_len} tokens fit"
        note += f", {alone.requests(one_table)} with one block table"
    return CachePlan([attention for attention, _, _ in found], groups, replace(budget, note=note))


def small_cache(config: EngineConfig, loaded: LoadedModel, num_blocks: int) -> CachePlan:
    """Return a cache of so many blocks with one table, whatever the model asks for: to try a step on."""
    found = kv_layouts(loaded)
    groups = together([(spec, layout) for _, spec, layout in found])
    size, longest = config.block_size, config.max_model_len
    budget = KVBudget(num_blocks, groups.bytes_per_block, size, longest, "to try a step", num_blocks * size)
    return CachePlan([attention for attention, _, _ in found], groups, budget)


def _demand(config: EngineConfig, groups: CacheGroups, active: ActivePlugins) -> KVDemand:
    columns = -(-config.max_model_len // config.block_size)
    task = engine_half(config, active)
    managers = planned_managers(config, groups.specs, active)
    return KVDemand(
        groups.bytes_per_block,
        config.block_size,
        config.max_model_len,
        config.options.scheduler.max_num_seqs,
        shortens=config.shortens,
        running=managers.most_blocks(columns, task.longest_chunk(task.limits(Limits.of(config)))),
        decoding=managers.most_blocks(columns, 1),
    )
