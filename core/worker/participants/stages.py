"""The moments of worker halves, bound once: what nobody overrides costs one look at an empty tuple.

What a half raises is told to its engine half with the step's result, by name; only what would make tokens wrong, a half
that fails to give inputs or allowed tokens, fails the step.
"""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from core.api.errors import EngineError, PluginError
from core.api.participants import SampledStep, WorkerParticipant
from core.api.steps import StepPlan, StepResult
from core.api.wire import restored
from core.engine.parts import require_kind
from core.plugins.drivers import describe
from core.worker.inputs import StepInputs

logger = logging.getLogger(__name__)

Late = Callable[[], Mapping[str, Any]]
"""Waits for the late parts of the step that runs."""


class WorkerStages:
    """Bound moments of the worker halves, in the order of the participants.

    Args:
        owners: By name of a participant: kind, name, distribution and version of its plugin, for messages.
        vocab_size: Of the model; 0: masks of any width are taken.
    """

    def __init__(
        self,
        halves: Sequence[WorkerParticipant] = (),
        owners: Mapping[str, str] | None = None,
        vocab_size: int = 0,
    ) -> None:
        self._words = -(-vocab_size // 32)
        self._owners = dict(owners or {})
        self._faults: dict[str, list[str]] = {}
        self._failed: set[str] = set()  # could not begin this step
        self._bind(halves)

    def begin(self, plan: StepPlan) -> list[int]:
        """Begin a step; return the blocks of its `loads` that were not filled."""
        lost: list[int] = []
        self._failed.clear()
        if plan.loads:  # of one that has no such moment nothing is filled
            filling = {half.name for half in self._begin}
            lost += [block for name, blocks in plan.loads.items() if name not in filling for block in blocks]
        for half in self._begin:
            lost += self._filled(half, plan)
        return lost

    def inputs(self, plan: StepPlan, step: StepInputs) -> StepInputs:
        """Return the inputs of the forward pass."""
        for half in self._inputs:
            step = self._needed(half, "inputs()", _inputs, half, plan, step)
        return step

    def allowed(self, plan: StepPlan, wait: Late | None) -> dict[int, np.ndarray]:
        """Return row -> bits of the tokens that it may sample, for constrained rows; waits for the late parts."""
        late = {} if wait is None else wait()
        bits: dict[int, np.ndarray] = {}
        for half in self._allow:
            if half.name in late:
                self._needed(half, "allow()", self._combine, half, plan, late[half.name], bits)
        return bits

    def drafts(self, rows: np.ndarray, known: np.ndarray, most: np.ndarray) -> np.ndarray:
        """Have drafts written behind the tokens of `rows`; return how many each has. One that fails has none."""
        nothing = np.zeros_like(most)
        for half in self._drafts[:1]:
            try:
                counts = half.drafts(rows, known, most)
                if counts is not None:
                    kept: np.ndarray = np.clip(counts, nothing, most).astype(np.int64, casting="same_kind")
                    return kept
            except Exception as error:
                self._fault(half, f"drafts() raised {describe(error)}")
        return nothing

    @property
    def listen(self) -> bool:
        """Whether somebody is told of sampled tokens."""
        return bool(self._sampled)

    def sampled(self, step: Callable[[], SampledStep]) -> None:
        """Tell of sampled tokens; `step` is called if somebody listens."""
        if self._sampled:
            told = step()
            for half in self._sampled:
                self._try(half, "sampled()", half.sampled, told)

    def end(self, plan: StepPlan, result: StepResult) -> None:
        """End a step; one that a participant could not begin has no end for it."""
        for half in self._end:
            if half.name not in self._failed:
                self._try(half, "end()", self._ended, half, plan, result)
        if self._faults:
            result.faults.update(self._faults)
            self._faults = {}

    def weights_replaced(self) -> None:
        """Tell all of them that the model has other weights. Raises `PluginError` CORE-P108 if one fails."""
        failed: list[PluginError] = []
        for half in self._halves:
            try:
                self._needed(half, "weights_replaced()", half.weights_replaced)
            except PluginError as error:
                failed.append(error)
        if failed:
            raise failed[0]

    def calls(self) -> dict[str, Callable[..., Any]]:
        """Return the methods that the halves offer. Raises `PluginError` CORE-P181 for a name that is taken."""
        found: dict[str, Callable[..., Any]] = {}
        for half in self._halves:
            for name, call in self._needed(half, "calls()", half.calls).items():
                if name in found:
                    raise PluginError("CORE-P181", f"{self._owner(half)}: there is a call '{name}' already.")
                found[name] = call
        return found

    def dismiss(self, names: Sequence[str]) -> None:
        """Close the participants of these names; they take part no more."""
        leaving = [half for half in self._halves if half.name in names]
        self._bind([half for half in self._halves if half.name not in names])
        for half in leaving:
            self._close(half)

    def close(self) -> None:
        """Close all of them. Harmless twice."""
        halves = self._halves
        self._bind(())
        for half in reversed(halves):
            self._close(half)

    def _bind(self, halves: Iterable[WorkerParticipant]) -> None:
        self._halves = tuple(halves)
        self._begin = self._overriding("begin")
        self._inputs = self._overriding("inputs")
        self._allow = self._overriding("allow")
        self._drafts = self._overriding("drafts")
        self._sampled = self._overriding("sampled")
        self._end = self._overriding("end")

    def _overriding(self, moment: str) -> tuple[WorkerParticipant, ...]:
        base = getattr(WorkerParticipant, moment)
        return tuple(half for half in self._halves if getattr(type(half), moment) is not base)

    def _filled(self, half: WorkerParticipant, plan: StepPlan) -> Sequence[int]:
        """Begin a step for one participant. When it raises, none of its loads is trusted."""
        wanted = plan.loads.get(half.name, ())
        try:
            if half.name in plan.parts:
                plan.parts[half.name] = restored(plan.parts[half.name], half.parts.plan, half.name)
            lost = [operator.index(block) for block in half.begin(plan) or ()]
            if not set(lost) <= set(wanted):
                raise ValueError(f"it names blocks that were not to be loaded: {sorted(set(lost) - set(wanted))[:8]}")
        except Exception as error:
            self._fault(half, f"begin() raised {describe(error)}")
            self._failed.add(half.name)
            return wanted
        if lost and half.name in plan.parts:
            self._fault(half, f"{len(lost)} of {len(wanted)} blocks could not be loaded")
        return lost

    def _combine(self, half: WorkerParticipant, plan: StepPlan, late: Any, bits: dict[int, np.ndarray]) -> None:
        """Add what one participant allows to `bits`."""
        allowed = half.allow(plan, restored(late, half.parts.late, half.name))
        if allowed is None:
            return
        due = (len(allowed.rows), self._words or allowed.bits.shape[-1])
        if allowed.bits.shape != due or allowed.bits.dtype != np.int32:
            raise ValueError(f"bits are {allowed.bits.dtype} {allowed.bits.shape}, due is int32 {due}")
        for row, mask in zip(allowed.rows.tolist(), allowed.bits, strict=True):
            bits[row] = bits[row] & mask if row in bits else mask

    def _ended(self, half: WorkerParticipant, plan: StepPlan, result: StepResult) -> None:
        half.end(plan, result)
        if half.name in result.parts:
            try:
                require_kind(result.parts[half.name], half.parts.result, half.name)
            except EngineError:
                del result.parts[half.name]
                raise

    def _needed(self, half: WorkerParticipant, what: str, method: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return method(*arguments)
        except PluginError:
            raise
        except Exception as error:
            raise PluginError("CORE-P108", f"{self._owner(half)}: {what} raised {describe(error)}.") from error

    def _try(self, half: WorkerParticipant, what: str, method: Callable[..., Any], *arguments: Any) -> None:
        try:
            method(*arguments)
        except Exception as error:
            self._fault(half, f"{what} raised {describe(error)}")

    def _fault(self, half: WorkerParticipant, text: str) -> None:
        self._faults.setdefault(half.name, []).append(text)

    def _close(self, half: WorkerParticipant) -> None:
        try:
            half.close()
        except Exception as error:
            text = "CORE-P161 %s: close() raised %s; it is taken for closed."
            logger.warning(text, self._owner(half), describe(error))

    def _owner(self, half: WorkerParticipant) -> str:
        return self._owners.get(half.name, f"participant '{half.name}'")


def _inputs(half: WorkerParticipant, plan: StepPlan, step: StepInputs) -> StepInputs:
    changed = half.inputs(plan, step)
    if not isinstance(changed, type(step)):
        raise TypeError(f"it returned a {type(changed).__name__}, not a {type(step).__name__}")
    return changed
