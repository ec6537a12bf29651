"""A participant with both halves in an engine over the arithmetic worker, its parts encoded on every way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import torch

from core.api.descriptors import ParticipantSpec
from core.api.errors import EngineError
from core.api.participants import (
    AllowedTokens,
    EngineSetup,
    Participant,
    Parts,
    SampledStep,
    StagedRequest,
    Tap,
    TapPlace,
    WorkerParticipant,
    WorkerSetup,
)
from core.api.steps import StepPlan, StepResult
from core.api.tokenizer import Tokenizer
from core.api.wire import MessageDecoder, encode_message
from core.config.resolved import Options
from core.engine.assembly import settings_of
from core.engine.participants.stages import Stages
from core.engine.request import Request
from core.engine.step_budget import Limits
from core.plugins.faults import Faults
from core.plugins.plan import PlannedPlugin
from core.worker.participants.stages import WorkerStages
from core_testing.arithmetic import ArithmeticExecutor, ArithmeticWorker
from core_testing.conformance.outcome import Unavailable
from core_testing.conformance.subject import Subject
from core_testing.conformance.tools.engine_driver import EngineDriver

T = TypeVar("T")

VOCABULARY = 97
BLOCK_SIZE = 4
LIMITS = Limits(max_num_seqs=4, max_num_batched_tokens=24, max_chunk=16, max_model_len=64)


@dataclass
class Late:
    """Late parts as another process receives them."""

    parts: dict[str, Any] = field(default_factory=dict)


class InArrivalOrder:
    """First come, first served; the latest admitted gives way."""

    def key(self, request: Any) -> tuple[int, ...]:
        """Return the place in line."""
        return (request.arrival,)

    def victim(self, running: Any) -> int:
        """Return who gives way."""
        return len(running) - 1


def _tap() -> Tap:
    """Return a tap of two layers that leave two ids a token, which never change."""
    places = tuple(TapPlace(f"layers.{layer}.mlp.experts", 2, 4) for layer in range(2))
    ids = torch.arange(LIMITS.max_num_batched_tokens * 4, dtype=torch.int32) % 4
    return Tap(places, ids.view(LIMITS.max_num_batched_tokens, 2, 2))


class Noted(Faults):
    """Faults, and all that was said of them.

    Attributes:
        texts: One for each fault.
    """

    def __init__(self, planned: PlannedPlugin, instead: str) -> None:
        super().__init__(planned, instead)
        self.texts: list[str] = []

    def note(self, text: str, *, fatal: bool = False) -> None:
        """Account for a fault."""
        self.texts.append(text)
        super().note(text, fatal=fatal)


class Bench:
    """One participant in an engine of its own.

    Args:
        options: What the plugin is made with.
        depth: Steps that are launched ahead.
        blocks: KV blocks; few of them make requests give way to each other.
        prefix: Whether there is a prefix cache; without one a second round takes as long as the first.

    Attributes:
        half, worker_half: The participant.
        faults: What it did wrong.
        arrived: Requests that were shown to the engine half alone.
        engine: The engine.
    """

    def __init__(
        self, subject: Subject, options: Mapping[str, Any], *, depth: int = 1, blocks: int = 24, prefix: bool = True
    ) -> None:
        spec, entry = subject.spec(ParticipantSpec), subject.entry
        self.arrived: dict[tuple[int, int], Request] = {}
        self.parts: Parts = Parts() if spec.parts is None else subject.load(spec.parts)
        planned = PlannedPlugin(
            group=entry.group, name=entry.name, value=entry.value, dist=entry.dist, version=entry.version, api=spec.api
        )
        self.faults = Noted(planned, "the step goes on without it")
        worker = ArithmeticWorker(blocks, BLOCK_SIZE, LIMITS.max_num_seqs, LIMITS.max_model_len, VOCABULARY)
        settings = settings_of(Options(), planned, spec.settings)
        self.half: Participant = subject.impl()(self._setup(entry.name, options, depth, settings))
        self.worker_half: WorkerParticipant | None = None
        if spec.worker_impl is not None:
            caches = [torch.from_numpy(worker.cache).view(blocks, BLOCK_SIZE)]
            pool, taps = torch.from_numpy(worker.pool), {name: _tap() for name in spec.taps}
            given = WorkerSetup(entry.name, options, caches, pool, VOCABULARY, BLOCK_SIZE, taps)
            self.worker_half = subject.load(spec.worker_impl)(given)
        halves = [self.half] if self.worker_half is None else [self.half, self.worker_half]
        for half in halves:
            half.name, half.parts = entry.name, self.parts
        constraining = frozenset({entry.name} if spec.constrains else ())
        stages = Stages([self.half], {entry.name: self.faults}, constraining)
        further = WorkerStages(() if self.worker_half is None else [self.worker_half], {}, VOCABULARY)
        self.engine = EngineDriver(
            _Executor(worker, blocks, further, self.faults),
            InArrivalOrder(),
            LIMITS,
            blocks=blocks,
            block_size=BLOCK_SIZE,
            overlap=depth,
            stages=stages,
            prefix=prefix,
        )

    @property
    def constrains(self) -> bool:
        """Whether its worker half may say which tokens are sampled."""
        return self.worker_half is not None and type(self.worker_half).allow is not WorkerParticipant.allow

    def close(self) -> None:
        """Close both halves."""
        self.half.close()
        if self.worker_half is not None:
            self.worker_half.close()

    def _setup(self, name: str, options: Mapping[str, Any], depth: int, settings: Mapping[str, Any]) -> EngineSetup:
        return EngineSetup(
            name=name,
            options=options,
            block_size=BLOCK_SIZE,
            bytes_per_block=4 * BLOCK_SIZE,
            max_rows=LIMITS.max_num_seqs,
            max_model_len=LIMITS.max_model_len,
            vocab_size=VOCABULARY,
            overlap_depth=depth,
            tokenizer=_no_tokenizer,
            cached_tokens=_nothing_cached,
            settings=settings,
        )


def _no_tokenizer() -> Tokenizer:
    raise Unavailable("it reads the tokenizer, and the kit's engine has none")


def _nothing_cached(request: StagedRequest) -> int:
    return 0


class _Executor(ArithmeticExecutor):
    """Steps with a worker half, in the order of `core.worker.runner`; messages cross as to another process."""

    def __init__(self, worker: ArithmeticWorker, blocks: int, stages: WorkerStages, faults: Faults) -> None:
        super().__init__(worker, blocks)
        self._stages, self._faults = stages, faults

    def launch(self, plan: StepPlan) -> Any:
        """Queue a step."""
        sent = self._crossed(plan)
        return _Step(lambda: self._execute(sent))

    def late(self, number: int, parts: Mapping[str, Any]) -> None:
        """Hand a step its late parts."""
        super().late(number, self._crossed(Late(dict(parts))).parts)

    def _execute(self, plan: StepPlan) -> StepResult:
        late = self.late_parts.pop(plan.number) if plan.late else {}
        if plan.leaving:
            self._stages.dismiss(plan.leaving)
        lost = self._stages.begin(plan)
        for block in lost:
            self.worker.cache[block * BLOCK_SIZE : (block + 1) * BLOCK_SIZE] = -7
        bits = self._stages.allowed(plan, lambda: late)
        rows = np.array(list(bits), np.int32)
        allowed = {"": AllowedTokens(rows, np.array(list(bits.values()), np.int32))} if bits else None
        result = self.worker.execute(plan, allowed)
        result.lost = lost
        self._stages.sampled(lambda: self._sampled(plan, result))
        self._stages.end(plan, result)
        return self._crossed(result)

    def _sampled(self, plan: StepPlan, result: StepResult) -> SampledStep:
        chosen = plan.samples
        known = (plan.starts + plan.counts)[chosen].astype(np.int64)
        return SampledStep(plan.rows[chosen].astype(np.int64), known, result.tokens, torch.from_numpy(self.worker.pool))

    def _crossed(self, message: T) -> T:
        """Return a message as another process receives it."""
        try:
            return MessageDecoder[T](type(message)).decode(encode_message(message))
        except EngineError as error:
            self._faults.note(str(error))
            raise


class _Step:
    def __init__(self, run: Callable[[], StepResult]) -> None:
        self._run = run

    def result(self) -> StepResult:
        return self._run()
