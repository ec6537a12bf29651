"""An engine without a model: real scheduler, pool and loop over the arithmetic worker."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import numpy as np
import pytest

from core.api.participants import Participant
from core.api.sampling_params import SamplingParams
from core.engine.blocks import BlockPool
from core.engine.hashing import BlockHasher
from core.engine.latency import LatencyTarget
from core.engine.loop import EngineLoop
from core.engine.managers import managers_for
from core.engine.messages import Add
from core.engine.participants.connectors import ConnectorEngineHalf
from core.engine.participants.stages import Stages
from core.engine.prefix import PrefixCache
from core.engine.request import Request
from core.engine.rows import RequestTable
from core.engine.scheduler import Scheduler
from core.engine.snapshots import Snapshots
from core.engine.step_budget import Limits
from core.plugins.faults import Faults
from core.plugins.plan import PlannedPlugin
from core.worker.participants.connectors import ConnectorWorkerHalf as WorkerHalf
from core.worker.participants.stages import WorkerStages
from core_testing.arithmetic import ArithmeticExecutor, ArithmeticWorker

VOCAB = 97


def faults(group, name, *, optional=False):
    """Return the faults of a plugin that is not installed."""
    planned = PlannedPlugin(group=group, name=name, value="", dist="acme", version="1.0", api=1)
    return Faults(planned, "something else instead", optional=optional)


class ArrivalOrder:
    """First come, first served; the latest admitted gives way."""

    def key(self, request):
        return (request.arrival,)

    def victim(self, running):
        return len(running) - 1


class Shelf:
    """A KV connector, both halves in one, over an `ArithmeticWorker`: keeps the tokens of every block it is offered.

    Attributes:
        loaded: Blocks that were ordered, in total.
        broken: Numbers of the plans that fail as a whole.
        unreadable: Numbers of the plans whose loads raise half-way.
        missing: Hashes of blocks that cannot be loaded.
    """

    def __init__(self, worker):
        self.worker, self.loaded = worker, 0
        self.broken, self.unreadable, self.missing = set(), set(), set()
        self.kept: dict[bytes, np.ndarray] = {}
        self._loads, self._saves = [], []
        self._saving = []
        self._stages = WorkerStages([WorkerHalf("shelf", self)])
        self._plain, worker.execute = worker.execute, self._execute

    def put(self, engine, prompt):
        """Keep the full blocks of a prompt."""
        tokens, hashes = np.array(prompt, np.int32), []
        engine.hasher.extend(hashes, engine.hasher.root(), tokens)
        self.kept.update(zip(hashes, tokens.reshape(-1, engine.block_size), strict=True))

    def check(self, engine, sequences):
        """Verify that every kept block holds the tokens that its hash stands for, given all texts of the engine."""
        truth = {}
        for tokens in sequences:
            hashes, tokens = [], np.array(tokens, np.int32)
            engine.hasher.extend(hashes, engine.hasher.root(), tokens)
            size = engine.block_size
            truth.update((digest, tokens[i * size : (i + 1) * size].tolist()) for i, digest in enumerate(hashes))
        assert {digest: tokens.tolist() for digest, tokens in self.kept.items()}.items() <= truth.items()

    def match(self, hashes, local_blocks):
        found = 0
        for digest in hashes[local_blocks:]:
            if digest not in self.kept:
                break
            found += 1
        return found

    def load(self, blocks):
        self.loaded += len(blocks)
        self._loads += blocks

    def save(self, blocks):
        self._saves += blocks

    def plan_step(self):
        moves = [[(ref.hash.hex(), ref.blocks) for ref in refs] for refs in (self._loads, self._saves)]
        self._loads, self._saves = [], []
        return json.dumps(moves).encode() if any(moves) else None

    def observe(self, report): ...

    def reset(self):
        self.kept.clear()

    def begin(self, message):
        loads, self._saving = json.loads(message)
        lost = [block for key, blocks in loads if bytes.fromhex(key) in self.missing for block in blocks if block]
        failing = self.failing and loads
        for key, blocks in loads[:1] if failing else loads:
            for group, block in enumerate(blocks):
                if block and block not in lost:
                    self._slots(block)[:] = self.kept[bytes.fromhex(key)] + group * VOCAB
        if failing:
            raise OSError("the store cannot be read")
        return lost

    def end(self):
        for key, blocks in self._saving:
            tokens = [self._slots(block) - group * VOCAB for group, block in enumerate(blocks)]
            assert all((one == tokens[0]).all() for one in tokens)
            self.kept.setdefault(bytes.fromhex(key), tokens[0].copy())
        self._saving = []

    def _execute(self, plan):
        if plan.number in self.broken:
            raise OSError("the device is away")
        self.failing = plan.number in self.unreadable
        lost = self._stages.begin(plan)
        for block in lost:
            self._slots(block)[:] = -7  # nothing that a request could go on with
        result = self._plain(plan)
        result.lost = lost
        self._stages.end(plan, result)
        return result

    def _slots(self, block):
        size = self.worker.block_size
        return self.worker.cache[block * size : (block + 1) * size]


class Guesses(Participant):
    """Lets every decoding row run some drafts, which an `ArithmeticWorker` makes up."""

    name = "guesses"
    proposes = True

    def __init__(self, most):
        self.most, self._random = most, np.random.default_rng(1)

    def drafts(self, rows, room):
        assert (room >= 0).all()
        return np.minimum(self._random.integers(0, self.most + 1, len(rows)), room)


@dataclass
class Harness:
    """One engine and what its clients received."""

    blocks: int = 64
    block_size: int = 4
    max_seqs: int = 8
    budget: int = 64
    max_chunk: int = 64
    max_len: int = 128
    depth: int = 1
    prefix: bool = True
    policy: object = field(default_factory=ArrivalOrder)
    participants: tuple = ()
    participant_faults: dict = field(default_factory=dict)
    constraining: frozenset = frozenset()
    soft_budget: bool = False
    spread: bool = False
    shelved: bool = False
    lenient: bool = False  # the connector is never switched off
    latency: float = 0.0
    drafts: int = 0  # most drafts of a row in a step
    agreement: float = 0.7
    windows: tuple = (0,)  # tokens that the next one depends on, by cache group; what lies before is given back
    snapshots: int | None = None  # of a recurrent state that the next token depends on as well
    interval: int = 8  # tokens from one of them to the next
    task: object = None

    def __post_init__(self):
        sizes = (self.blocks, self.block_size, self.max_seqs, self.max_len, VOCAB)
        self.worker = ArithmeticWorker(*sizes, agreement=self.agreement, windows=self.windows, snapshots=self.snapshots)
        if self.drafts:
            self.participants = (*self.participants, Guesses(self.drafts))
        if self.shelved:
            self.shelf = Shelf(self.worker)
            self.participants = (
                *self.participants,
                ConnectorEngineHalf(
                    "shelf", self.shelf, faults("core.kv_connectors", "shelf", optional=not self.lenient)
                ),
            )
        self.pool = BlockPool(self.blocks)
        self.hasher = BlockHasher(self.block_size)
        self.executor = ArithmeticExecutor(self.worker, self.blocks)
        managers = managers_for(self.executor.start().groups, self.block_size)
        self.rows = RequestTable(self.max_seqs, self.max_len, self.block_size, len(self.windows))
        states = Snapshots(self.rows, self.snapshots, self.interval) if self.snapshots else None
        shares = self.prefix and self.snapshots != 0
        self.cache = PrefixCache(self.pool, self.hasher, enabled=shares, managers=managers, snapshots=states)
        self.scheduler = Scheduler(
            Limits(self.max_seqs, self.budget, self.max_chunk, self.max_len, self.soft_budget),
            self.rows,
            self.cache,
            self.policy,
            Stages(self.participants, self.participant_faults, self.constraining),
            latency=LatencyTarget(self.latency, self.block_size) if self.latency else None,
            task=self.task,
        )
        self.scheduler.spread = self.spread
        self.loop = EngineLoop(self.scheduler, self.executor, self.depth)
        self.outputs: dict[int, list[int]] = {}
        self.finished: dict[int, str] = {}
        self.errors: dict[int, str | None] = {}
        self.parts: dict[int, dict[str, object]] = {}
        self.started: list[int] = []
        self.cached: dict[int, int] = {}
        self._arrivals = 0

    def add(self, handle, prompt, *, stop_ids=(), priority=0, salt=None, generated=(), parts=None, **params):
        params.setdefault("temperature", 0.0)
        message = Add(
            handle=handle,
            prompt=np.array(prompt, "<i4").tobytes(),
            params=SamplingParams(**params),
            stop_ids=list(stop_ids),
            priority=priority,
            cache_salt=salt,
            generated=np.array(generated, "<i4").tobytes(),
            parts=parts or {},
        )
        self._arrivals += 1
        self.outputs[handle] = []
        self.scheduler.add(Request(message, self._arrivals, self.hasher.root(salt=salt)))

    def abort(self, handle):
        self.scheduler.finish(self.scheduler.requests[handle])

    def advance(self):
        outputs = self.loop.advance()
        if outputs is None:
            return
        handles, tokens = np.frombuffer(outputs.handles, "<i8"), np.frombuffer(outputs.tokens, "<i4")
        for handle, token in zip(handles.tolist(), tokens.tolist(), strict=True):
            self.outputs[handle].append(token)
        self.started += [started.handle for started in outputs.started]
        self.cached.update((started.handle, started.cached_tokens) for started in outputs.started)
        for finished in outputs.finished:
            self.finished[finished.handle] = finished.reason
            self.errors[finished.handle] = finished.error
            self.parts[finished.handle] = finished.parts

    def run(self, max_turns=5000):
        for _ in range(max_turns):
            if not self.loop.busy:
                self.scheduler.check()
                return self.outputs
            self.advance()
        raise AssertionError(f"still busy after {max_turns} turns")


@pytest.fixture
def harness():
    return Harness


@pytest.fixture
def faulty():
    """Return a function that gives the faults of a plugin `odd` of a kind."""
    return lambda group: faults(group, "odd")
