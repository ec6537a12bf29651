from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

import hypothesis.strategies as st
import msgspec
import pytest
import torch
from core_plugin_cpu_offload.manifest import CPU_OFFLOAD
from core_plugin_cpu_offload.mover import HostMover
from core_plugin_cpu_offload.store import HostStore
from core_plugin_cpu_offload.transfer import Report, Transfer
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from core.api import BlockRef, ConfigError, EngineError


def store(slots: int, eviction: str = "lru") -> HostStore:
    return HostStore({"capacity": slots * 64, "eviction": eviction}, block_size=4, bytes_per_block=64)


def refs(names: str, first_block: int = 1) -> list[BlockRef]:
    """`refs("abc")`: three blocks with hashes a, b, c in device blocks 1, 2, 3."""
    return [BlockRef(index, name.encode(), (first_block + index,)) for index, name in enumerate(names)]


def hashes(names: str) -> list[bytes]:
    return [name.encode() for name in names]


def step(engine: HostStore) -> Transfer | None:
    """Plan a step and let it succeed."""
    message = engine.plan_step()
    if message is None:
        return None
    transfer = msgspec.msgpack.decode(message, type=Transfer)
    engine.observe(msgspec.msgpack.encode(Report(transfer.number, 5, 7)))
    return transfer


def saved(engine: HostStore, names: str) -> None:
    engine.save(refs(names))
    step(engine)


def test_match_counts_consecutive_blocks_after_the_local_ones() -> None:
    engine = store(8)
    saved(engine, "abd")
    assert engine.match(hashes("abcd"), 0) == 2
    assert engine.match(hashes("abcd"), 1) == 1
    assert engine.match(hashes("abcd"), 2) == 0
    assert engine.match(hashes("ab"), 2) == 0
    assert engine.match(hashes("ab"), 5) == 0


def test_a_block_is_stored_once() -> None:
    engine = store(8)
    engine.save(refs("ab"))
    engine.save(refs("ab", first_block=10))
    assert step(engine).saves == [(0, 1), (1, 2)]
    engine.save(refs("abc"))
    assert step(engine).saves == [(2, 3)]
    assert step(engine) is None


def test_blocks_count_once_the_worker_has_them() -> None:
    engine = store(8)
    engine.save(refs("a"))
    assert engine.match(hashes("a"), 0) == 0
    transfer = msgspec.msgpack.decode(engine.plan_step(), type=Transfer)
    assert engine.match(hashes("a"), 0) == 0
    engine.observe(msgspec.msgpack.encode(Report(transfer.number, 0, 0)))
    assert engine.match(hashes("a"), 0) == 1


def test_blocks_of_a_step_that_failed_are_forgotten() -> None:
    engine = store(2)
    engine.save(refs("ab"))
    engine.plan_step()
    engine.save(refs("c"))
    second = msgspec.msgpack.decode(engine.plan_step(), type=Transfer)
    assert (second.number, second.saves) == (2, []), "both slots wait for the first message"
    engine.observe(msgspec.msgpack.encode(Report(2, 0, 0)))
    assert engine.stats()["used"] == 0
    assert engine.plan_step() is None
    saved(engine, "ab")
    assert engine.match(hashes("ab"), 0) == 2


def test_least_recently_used_blocks_leave_first_and_heads_stay_longest() -> None:
    engine = store(4)
    saved(engine, "ab")
    saved(engine, "xy")
    engine.load(refs("ab"))
    step(engine)
    saved(engine, "m")
    assert (engine.match(hashes("ab"), 0), engine.match(hashes("xy"), 0)) == (2, 1)
    saved(engine, "no")
    assert (engine.match(hashes("ab"), 0), engine.match(hashes("xy"), 0)) == (1, 0)


@pytest.mark.covers("KV-03")
@pytest.mark.parametrize(("eviction", "kept"), [("lru", 0), ("arc", 4)])
def test_prompts_that_pass_by_displace_what_was_used_again_with_lru_alone(eviction: str, kept: int) -> None:
    engine = store(8, eviction)
    for prompt in ("abcd", "abcd", "efghijkl", "mnopqrst", "uvwxyz12"):
        saved(engine, prompt)
    assert engine.match(hashes("abcd"), 0) == kept


def test_saving_again_counts_as_use() -> None:
    engine = store(2)
    saved(engine, "a")
    saved(engine, "b")
    saved(engine, "a")
    saved(engine, "c")
    assert (engine.match(hashes("a"), 0), engine.match(hashes("b"), 0)) == (1, 0)


def test_a_prefix_longer_than_the_store_keeps_its_head() -> None:
    engine = store(2)
    saved(engine, "abcd")
    assert engine.match(hashes("abcd"), 0) == 2
    assert engine.stats()["declined"] == 2


def test_a_slot_is_not_written_in_the_step_that_loads_it() -> None:
    engine = store(2)
    saved(engine, "ab")
    engine.save(refs("cd"))
    engine.load(refs("a", first_block=7))
    transfer = step(engine)
    assert transfer.loads == [(0, 7)]
    assert transfer.saves == [(1, 1)]
    engine.save(refs("d"))
    assert [slot for slot, _ in step(engine).saves] == [0], "after that step the slot is free to go"


def test_a_reset_forgets_what_is_stored_and_what_is_on_its_way() -> None:
    engine = store(4)
    saved(engine, "ab")
    engine.save(refs("c"))
    transfer = msgspec.msgpack.decode(engine.plan_step(), type=Transfer)
    engine.save(refs("d"))
    engine.reset()
    engine.observe(msgspec.msgpack.encode(Report(transfer.number, 0, 0)))
    assert engine.plan_step() is None
    assert [engine.match(hashes(name), 0) for name in "abcd"] == [0, 0, 0, 0]
    assert engine.stats()["used"] == 0


def test_loading_what_was_never_promised_is_an_error() -> None:
    with pytest.raises(EngineError, match="CORE-E136"):
        store(2).load(refs("a"))


def test_stats() -> None:
    engine = store(2)
    saved(engine, "ab")
    engine.load(refs("a"))
    step(engine)
    saved(engine, "c")
    assert engine.stats() == {
        "slots": 2, "used": 2, "loaded": 1, "saved": 3, "evicted": 1, "declined": 0, "load_us": 15, "save_us": 21,
    }  # fmt: skip


@pytest.mark.parametrize(("text", "slots"), [("1KiB", 16), ("128", 2), (640, 10)])
def test_capacity_is_a_size(text: str | int, slots: int) -> None:
    assert HostStore({"capacity": text}, block_size=4, bytes_per_block=64).slots == slots


@pytest.mark.parametrize(
    "options", [{"capacity": "much"}, {"capacity": 63}, {"capacity": 0}, {"room": 1}, {"eviction": "fifo"}]
)
def test_wrong_options_are_explained(options: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="CORE-C150 cpu_offload"):
        HostStore(options, block_size=4, bytes_per_block=64)


def device(blocks: int, dtype: torch.dtype, shapes: Sequence[tuple[int, ...]]) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn((blocks, *shape), generator=generator).to(dtype) for shape in shapes]


@pytest.mark.covers("KV-03")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_blocks_come_back_with_equal_bytes(dtype: torch.dtype) -> None:
    caches = device(6, dtype, [(2, 4, 1, 3), (4, 8)])
    before = [cache[1:4].clone() for cache in caches]
    engine, worker = store(4), HostMover({})
    worker.bind(caches)
    engine.save(refs("abc"))
    worker.begin(engine.plan_step())
    engine.observe(worker.end())
    for cache in caches:
        cache.zero_()
    assert engine.match(hashes("abc"), 0) == 3
    engine.load(refs("abc", first_block=2))
    worker.begin(engine.plan_step())
    for cache, want in zip(caches, before):
        assert torch.equal(cache[2:5], want)
        assert not cache[[0, 1, 5]].any()
    engine.observe(worker.end())
    assert worker.end() is None
    worker.close()


def test_loads_come_before_the_forward_pass_and_saves_after_it() -> None:
    (cache,) = caches = device(4, torch.float32, [(2,)])
    engine, worker = store(4), HostMover({})
    worker.bind(caches)
    saved_bytes = cache[1].clone()
    engine.save(refs("a"))
    worker.begin(engine.plan_step())
    engine.observe(worker.end())
    cache.zero_()
    engine.load(refs("a", first_block=3))
    engine.save(refs("xb")[1:])
    worker.begin(engine.plan_step())
    assert torch.equal(cache[3], saved_bytes)
    cache[2] = 42.0  # the forward pass
    engine.observe(worker.end())
    engine.load(refs("b", first_block=3))
    worker.begin(engine.plan_step())
    assert torch.equal(cache[3], torch.full((2,), 42.0))


def test_saves_of_a_step_that_failed_are_called_off() -> None:
    caches = device(2, torch.float32, [(2,)])
    engine, worker = store(4), HostMover({})
    worker.bind(caches)
    engine.save(refs("a"))
    worker.begin(engine.plan_step())  # the forward pass fails here: no end
    worker.begin(engine.plan_step())
    engine.observe(worker.end())
    assert engine.match(hashes("a"), 0) == 0
    assert engine.stats() | {"load_us": 0, "save_us": 0} == dict.fromkeys(engine.stats(), 0) | {"slots": 4}


class Offloading(RuleBasedStateMachine):
    """The store against a world of bytes: whatever it promises and loads must be what was saved under that hash."""

    names = st.lists(st.integers(0, 9), min_size=1, max_size=6, unique=True)
    eviction = "lru"

    def __init__(self) -> None:
        super().__init__()
        self.engine = store(4, self.eviction)
        self.host: dict[int, int] = {}
        self.device: dict[int, int] = {}
        self.next_block = 1
        self.expect: dict[int, int] = {}
        self.flight: list[Transfer] = []

    @rule(names=names)
    def save(self, names: list[int]) -> None:
        blocks = []
        for index, name in enumerate(names):
            self.device[self.next_block] = name
            blocks.append(BlockRef(index, bytes([name]), (self.next_block,)))
            self.next_block += 1
        self.engine.save(blocks)

    @rule(names=names)
    def load(self, names: list[int]) -> None:
        count = self.engine.match([bytes([name]) for name in names], 0)
        blocks = []
        for index, name in enumerate(names[:count]):
            self.expect[self.next_block] = name
            blocks.append(BlockRef(index, bytes([name]), (self.next_block,)))
            self.next_block += 1
        self.engine.load(blocks)

    @rule(lost=st.integers(0, 9).map(lambda draw: draw == 0))
    def plan(self, lost: bool) -> None:
        message = self.engine.plan_step()
        if message is None:
            assert not self.expect
            return
        transfer = msgspec.msgpack.decode(message, type=Transfer)
        touched = [slot for slot, _ in transfer.loads]
        written = [slot for slot, _ in transfer.saves]
        assert len(set(written)) == len(written)
        assert not set(written) & set(touched)
        assert all(0 <= slot < 4 for slot in touched + written)
        for slot, block in transfer.loads:
            self.device[block] = self.host[slot]
        for block, name in self.expect.items():
            assert self.device[block] == name
        self.expect.clear()
        if lost:  # the step failed before its saves: the slots hold anything
            self.host.update(dict.fromkeys(written, -1))
            return
        self.host.update({slot: self.device[block] for slot, block in transfer.saves})
        self.flight.append(transfer)

    @rule()
    def reset(self) -> None:
        if not self.expect:
            self.engine.reset()
            assert self.engine.match([bytes([name]) for name in range(10)], 0) == 0

    @rule()
    def report(self) -> None:
        if self.flight:
            self.engine.observe(msgspec.msgpack.encode(Report(self.flight.pop(0).number, 0, 0)))

    @invariant()
    def slots_are_neither_shared_nor_lost(self) -> None:
        used = [entry.slot for entry in self.engine._entries.values()]
        assert sorted([*used, *self.engine._free]) == [0, 1, 2, 3]


class OffloadingByUse(Offloading):
    """The same by adaptive replacement."""

    eviction = "arc"


TestOffloading = Offloading.TestCase
TestOffloadingByUse = OffloadingByUse.TestCase
for case in (TestOffloading, TestOffloadingByUse):
    case.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_the_engine_side_is_free_of_torch() -> None:
    modules = [CPU_OFFLOAD.impl.partition(":")[0], CPU_OFFLOAD.options.partition(":")[0]]
    code = f"import sys, {', '.join(modules)}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
