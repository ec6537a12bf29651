"""The KV budget: how many blocks fit, and what to say when too few do."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil

import numpy as np

from core.api.errors import ConfigError, EngineError
from core.api.platform import MemorySnapshot
from core.config.sizes import parse_size
from core.options.engine import KVOptions

NULL_BLOCKS = 1
"""Block 0 stands for "no block": tables point at it where a row has none, so no request owns it."""


@dataclass(frozen=True, slots=True)
class KVDemand:
    """Requirements on the KV cache.

    Attributes:
        bytes_per_block: Bytes of one block over the layers of a cache group; 0 if no layer keeps anything.
        max_model_len: Longest request, in tokens.
        shortens: Whether `max_model_len` may be lowered to what fits.
        running: Most blocks that a row of n columns holds at once, over all cache groups; entry n, as far as
            `max_model_len` goes. None: a block each.
        decoding: The same for a row that computes token by token.
    """

    bytes_per_block: int
    block_size: int
    max_model_len: int
    max_num_seqs: int
    shortens: bool = False
    running: np.ndarray | None = None
    decoding: np.ndarray | None = None

    @property
    def columns(self) -> int:
        """Columns of the longest request: a column is one block of each cache group."""
        return -(-self.max_model_len // self.block_size)

    @property
    def least_blocks(self) -> int:
        """Blocks without which a request of `max_model_len` tokens can never run."""
        return _held(self.running, self.columns) + NULL_BLOCKS

    @property
    def most_blocks(self) -> int:
        """Blocks that all rows together could ever use."""
        return self.max_num_seqs * (self.least_blocks - NULL_BLOCKS) + NULL_BLOCKS

    def longest(self, num_blocks: int) -> int:
        """Return the longest request that so many blocks hold, in tokens, at most `max_model_len`."""
        room = max(0, num_blocks - NULL_BLOCKS)
        held = np.arange(self.columns + 1) if self.running is None else self.running[: self.columns + 1]
        columns = int(np.searchsorted(held, room, side="right")) - 1
        return min(self.max_model_len, columns * self.block_size)


@dataclass(frozen=True, slots=True)
class KVBudget:
    """The decision, in numbers.

    Attributes:
        max_model_len: Longest request that fits, in tokens, at most the one that was asked for.
        reason: Which rule set the number of blocks.
        num_tokens: Tokens that decoding requests of the longest length can keep in the cache.
        note: What else the start-up table says.
    """

    num_blocks: int
    bytes_per_block: int
    block_size: int
    max_model_len: int
    reason: str
    num_tokens: int
    note: str = ""

    @property
    def num_bytes(self) -> int:
        """Bytes of the whole cache."""
        return self.num_blocks * self.bytes_per_block

    def requests(self, demand: KVDemand) -> int:
        """Return how many decoding requests of the longest length fit, of a model that keeps what `demand` says."""
        columns = -(-self.max_model_len // self.block_size)
        return max(0, self.num_blocks - NULL_BLOCKS) // max(1, _held(demand.decoding, columns))

    def describe(self) -> str:
        """Return one line for the start-up table."""
        text = f"{gib(self.num_bytes)}, {self.num_blocks} blocks, {self.num_tokens} tokens ({self.reason})"
        return f"{text}; {self.note}" if self.note else text


def _held(most: np.ndarray | None, columns: int) -> int:
    return columns if most is None else int(most[columns])


def plan_kv(options: KVOptions, demand: KVDemand, memory: MemorySnapshot, *, unread: int = 0) -> KVBudget:
    """Decide the number of KV blocks.

    Args:
        memory: As it is now; see `share`.
        unread: Bytes that weights will take, which are not read yet.

    Raises:
        ConfigError: `kv_memory` is not a size.
        EngineError: Not even one request of the longest length fits; one of a single block, where it may be lowered.
    """
    num_blocks, reason = _wanted(options, demand, memory, unread)
    longest = demand.longest(num_blocks) if demand.shortens else demand.max_model_len
    needed = replace(demand, max_model_len=max(1, longest))
    columns, room = needed.columns, max(0, num_blocks - NULL_BLOCKS)
    tokens = room * columns * demand.block_size // max(1, _held(demand.decoding, columns))
    budget = KVBudget(num_blocks, demand.bytes_per_block, demand.block_size, longest, reason, tokens)
    if num_blocks < needed.least_blocks:
        raise _too_small(budget, needed, memory, unread)
    return budget


def holds_all(options: KVOptions, demand: KVDemand, memory: MemorySnapshot, *, unread: int = 0) -> bool:
    """Return whether the cache holds whatever all rows together could use. Arguments and errors as for `plan_kv`."""
    return _wanted(options, demand, memory, unread)[0] >= demand.most_blocks


def share(fraction: float, memory: MemorySnapshot, unread: int = 0) -> tuple[int, str]:
    """Return the bytes that a fraction of memory leaves for keys, values and states, and how they come about.

    With a `peak` the fraction is one of all memory, of which weights and steps have taken theirs; else of what is free.

    Args:
        unread: Bytes that will be taken, and are not yet.
    """
    if not memory.peak:
        free = max(0, memory.free - unread)
        return int(free * fraction), f"memory_fraction {fraction:g} of {gib(free)} free"
    whole = ceil(memory.total * fraction)
    taken = f"of which weights and a step take {gib(memory.peak)}"
    return max(0, whole - memory.peak), f"memory_fraction {fraction:g} of {gib(memory.total)} is {gib(whole)}, {taken}"


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


def _wanted(options: KVOptions, demand: KVDemand, memory: MemorySnapshot, unread: int) -> tuple[int, str]:
    if options.num_blocks is not None:
        return options.num_blocks, "num_blocks"
    if not demand.bytes_per_block:
        return demand.most_blocks, "the model keeps no keys and values"
    if options.kv_memory is not None:
        size, reason = _configured(options.kv_memory), f"kv_memory {options.kv_memory}"
    else:
        size, reason = share(options.memory_fraction, memory, unread)
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
