"""Engine side: which block hashes are in which host slots."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec
from pydantic import ValidationError

from core.api import ConfigError, EngineError
from core_plugin_cpu_offload.eviction import EVICTIONS
from core_plugin_cpu_offload.options import OffloadOptions
from core_plugin_cpu_offload.transfer import Report, Transfer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from core.api import BlockRef


@dataclass(slots=True)
class Entry:
    """A host slot in use; `ready` once the worker reported that its bytes are there."""

    slot: int
    ready: bool = False


class HostStore:
    """Full blocks in host memory.

    A block of several cache groups takes one slot, which is as many places in a row as it has groups; a place is as
    large as a device block.

    A block goes through `save` -> message (its slot is taken, the entry not ready) -> report (ready: `match` counts
    it). Slots change hands in `plan_step` only, so that what `match` promised is still there when `load` comes, and a
    slot that a message loads from is not written by the saves of the same message.

    Args:
        options: See `OffloadOptions`.
        bytes_per_block: Bytes of one block over all layers and cache groups.

    Raises:
        ConfigError: The options are wrong, or the capacity holds no block (code `CORE-C150`).
    """

    def __init__(self, options: Mapping[str, Any], *, block_size: int, bytes_per_block: int) -> None:
        given = _options(options)
        self._eviction = given.eviction
        self.slots = int(given.capacity) // bytes_per_block
        if self.slots == 0:
            raise ConfigError(
                "CORE-C150",
                f"cpu_offload: the capacity holds not one KV block of {block_size} tokens ({bytes_per_block} bytes).",
                hint="Raise the option capacity of cpu_offload.",
            )
        self._number = 0
        self._counts = dict.fromkeys(("loaded", "saved", "evicted", "declined", "load_us", "save_us"), 0)
        self.reset()

    def reset(self) -> None:
        """Forget every block, those on their way included: what they hold was computed with other weights."""
        self._entries: dict[bytes, Entry] = {}
        self._order = EVICTIONS[self._eviction](self.slots)
        self._free = deque(range(self.slots))
        self._loads: list[tuple[int, tuple[int, ...]]] = []
        self._wanted: dict[bytes, tuple[int, ...]] = {}
        self._groups = 1
        self._pinned: set[bytes] = set()
        self._unconfirmed: deque[tuple[int, list[bytes]]] = deque()

    def match(self, hashes: Sequence[bytes], local_blocks: int) -> int:
        """Count the ready blocks that follow the first `local_blocks`, up to the first gap."""
        for index in range(local_blocks, len(hashes)):
            entry = self._entries.get(hashes[index])
            if entry is None or not entry.ready:
                return index - local_blocks
        return max(len(hashes) - local_blocks, 0)

    def load(self, blocks: Sequence[BlockRef]) -> None:
        """Schedule copies into device blocks and keep their slots until the step is planned.

        Raises:
            EngineError: A block is not stored, so `match` did not promise it (code `CORE-E136`).
        """
        for block in blocks:
            entry = self._entries.get(block.hash)
            if entry is None or not entry.ready:
                raise EngineError(
                    "CORE-E136", f"cpu_offload was asked for block {block.index}, which it does not hold."
                )
            self._loads.append((entry.slot, block.blocks))
            self._pinned.add(block.hash)
        self._touch([block.hash for block in blocks])

    def save(self, blocks: Sequence[BlockRef]) -> None:
        """Schedule copies of the blocks that are not stored yet."""
        for block in blocks:
            if block.hash not in self._entries:
                self._wanted.setdefault(block.hash, block.blocks)
        self._touch([block.hash for block in blocks if block.hash in self._entries])

    def plan_step(self) -> bytes | None:
        """Give slots to the blocks to save and return this step's copies."""
        saves = self._place()
        loads, self._loads = self._loads, []
        self._pinned.clear()
        # An earlier step whose saves nobody confirmed may have failed before them; the message calls them off.
        if not loads and not saves and not any(hashes for _, hashes in self._unconfirmed):
            return None
        self._number += 1
        self._unconfirmed.append((self._number, [block_hash for block_hash, _, _ in saves]))
        self._counts["loaded"] += len(loads)
        copies = loads, [(slot, blocks) for _, slot, blocks in saves]
        self._groups = next((len(blocks) for one in copies for _, blocks in one), self._groups)
        places = self.slots * self._groups
        return msgspec.msgpack.encode(Transfer(self._number, places, *(_places(one) for one in copies)))

    def observe(self, report: bytes) -> None:
        """Make the blocks of a finished message ready; forget those of earlier messages that were never reported."""
        done = msgspec.msgpack.decode(report, type=Report)
        while self._unconfirmed and self._unconfirmed[0][0] <= done.number:
            number, hashes = self._unconfirmed.popleft()
            for block_hash in hashes:
                if number == done.number:
                    self._entries[block_hash].ready = True
                    self._counts["saved"] += 1
                else:
                    self._order.discard(block_hash)
                    self._free.append(self._entries.pop(block_hash).slot)
        self._counts["load_us"] += done.load_us
        self._counts["save_us"] += done.save_us

    def stats(self) -> dict[str, int]:
        """Return slots and used slots, and what was moved, evicted or declined (no slot to be had) so far."""
        return {"slots": self.slots, "used": len(self._entries), **self._counts}

    def _touch(self, hashes: Sequence[bytes]) -> None:
        # Last block first: a prefix is of no use without its head, so heads stay longest.
        for block_hash in reversed(hashes):
            self._order.touch(block_hash)

    def _place(self) -> list[tuple[bytes, int, tuple[int, ...]]]:
        """Take slots for the wanted blocks, in their order, while there are slots: `(hash, slot, device blocks)`."""
        wanted, self._wanted = self._wanted, {}
        victims = self._order.evict(list(wanted), len(self._free), self._idle)
        self._counts["evicted"] += len(victims)
        self._free.extend(self._entries.pop(victim).slot for victim in victims)
        placed = [
            (block_hash, self._free.popleft(), blocks) for block_hash, blocks in islice(wanted.items(), len(self._free))
        ]
        self._counts["declined"] += len(wanted) - len(placed)
        for block_hash, slot, _ in reversed(placed):
            self._entries[block_hash] = Entry(slot)
            self._order.add(block_hash)
        return placed

    def _idle(self, block_hash: bytes) -> bool:
        return self._entries[block_hash].ready and block_hash not in self._pinned


def _places(copies: Sequence[tuple[int, tuple[int, ...]]]) -> list[tuple[int, int]]:
    """Return the host place of every device block; 0 is none."""
    return [(slot * len(own) + group, block) for slot, own in copies for group, block in enumerate(own) if block]


def _options(options: Mapping[str, Any]) -> OffloadOptions:
    try:
        return OffloadOptions.model_validate(dict(options))
    except ValidationError as error:
        reasons = "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors())
        raise ConfigError("CORE-C150", f"cpu_offload: its options cannot be used: {reasons}.") from error
