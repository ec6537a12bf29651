"""The KV budget: how many blocks fit, and what to say when too few do."""

from __future__ import annotations

from dataclasses import dataclass, replace

from core.api.errors import ConfigError, EngineError
from core.api.platform import MemorySnapshot
from core.config.resolved import KVOptions
from core.config.sizes import parse_size

NULL_BLOCKS = 1
"""Block 0 stands for "no block": tables point at it where a row has none, so no request owns it."""


@dataclass(frozen=True, slots=True)
class KVDemand:
    """What the cache must hold.

    Attributes:
        bytes_per_block: Bytes of one block over all layers; 0 if no layer keeps anything.
        max_model_len: Longest request, in tokens.
        shortens: Whether `max_model_len` may be lowered to what fits.
    """

    bytes_per_block: int
    block_size: int
    max_model_len: int
    max_num_seqs: int
    shortens: bool = False

    @property
    def least_blocks(self) -> int:
        """Blocks without which a request of `max_model_len` tokens can never run."""
        return -(-self.max_model_len // self.block_size) + NULL_BLOCKS

    @property
    def most_blocks(self) -> int:
        """Blocks that all rows together could ever use."""
        return self.max_num_seqs * (self.least_blocks - NULL_BLOCKS) + NULL_BLOCKS


@dataclass(frozen=True, slots=True)
class KVBudget:
    """The decision, in numbers.

    Attributes:
        max_model_len: Longest request that fits, in tokens, at most the one that was asked for.
        reason: Which rule set the number of blocks.
    """

    num_blocks: int
    bytes_per_block: int
    block_size: int
    max_model_len: int
    reason: str

    @property
    def num_bytes(self) -> int:
        """Bytes of the whole cache."""
        return self.num_blocks * self.bytes_per_block

    @property
    def num_tokens(self) -> int:
        """Tokens that requests can keep in the cache."""
        return (self.num_blocks - NULL_BLOCKS) * self.block_size

    def describe(self) -> str:
        """Return one line for the start-up table."""
        return f"{gib(self.num_bytes)}, {self.num_blocks} blocks, {self.num_tokens} tokens ({self.reason})"


def plan_kv(options: KVOptions, demand: KVDemand, memory: MemorySnapshot, *, unread: int = 0) -> KVBudget:
    """Decide the number of KV blocks.

    Args:
        memory: As it is now; with a `peak`, the cache gets its part of what is left beside that.
        unread: Bytes that weights will take, which are not read yet.

    Raises:
        ConfigError: `kv_memory` is not a size.
        EngineError: Not even one request of the longest length fits; one of a single block, where it may be lowered.
    """
    free = memory.total - memory.peak if memory.peak else memory.free - unread
    num_blocks, reason = _wanted(options, demand, max(0, free), peak=memory.peak > 0)
    room = max(0, num_blocks - NULL_BLOCKS) * demand.block_size
    longest = min(demand.max_model_len, room) if demand.shortens else demand.max_model_len
    budget = KVBudget(num_blocks, demand.bytes_per_block, demand.block_size, longest, reason)
    needed = replace(demand, max_model_len=max(1, longest))
    if num_blocks < needed.least_blocks:
        raise _too_small(budget, needed, memory, unread)
    return budget


def _too_small(budget: KVBudget, needed: KVDemand, memory: MemorySnapshot, unread: int) -> EngineError:
    tokens = "one token" if needed.max_model_len == 1 else f"{needed.max_model_len} tokens"
    weights = f", of which the weights will take {gib(unread)}" if unread else ""
    shorten = "" if needed.shortens else "Lower --max-model-len (auto: to what fits), or raise"
    return EngineError(
        "CORE-E120",
        f"The KV cache has room for {gib(budget.num_bytes)} ({budget.num_blocks} blocks, {budget.reason}), but one "
        f"request of {tokens} needs {gib(needed.least_blocks * needed.bytes_per_block)} "
        f"({needed.least_blocks} blocks); {gib(memory.free)} of {gib(memory.total)} memory is free{weights}.",
        hint=f"{shorten or 'Raise'} --kv-memory, --memory-fraction or --num-blocks.",
    )


def _wanted(options: KVOptions, demand: KVDemand, free: int, *, peak: bool) -> tuple[int, str]:
    if options.num_blocks is not None:
        return options.num_blocks, "num_blocks"
    if not demand.bytes_per_block:
        return demand.most_blocks, "the model keeps no keys and values"
    if options.kv_memory is not None:
        size, reason = _configured(options.kv_memory), f"kv_memory {options.kv_memory}"
    else:
        size = int(free * options.memory_fraction)
        reason = f"memory_fraction {options.memory_fraction:g} of {gib(free)} {'beside a step' if peak else 'free'}"
    fitting = size // demand.bytes_per_block
    if fitting > demand.most_blocks:
        return demand.most_blocks, f"all that {demand.max_num_seqs} requests of {demand.max_model_len} tokens can use"
    return fitting, reason


def _configured(text: str) -> int:
    try:
        return parse_size(text)
    except ValueError as error:
        raise ConfigError("CORE-C120", f"kv_memory: {error}.", hint="Write for example --kv-memory 2GiB.") from error


def gib(num_bytes: int) -> str:
    """Return a size the way every message shows it: GiB with two decimals."""
    return f"{num_bytes / 2**30:.2f} GiB"
