"""Stage participants: how features attach to the engine's loop without the loop knowing them.

The loop's stages are `admit -> place -> plan -> launch -> collect -> settle`. A participant overrides the moments it
cares about; what is not configured is not in the list.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from itertools import islice

import numpy as np

from core.api.connectors import BlockRef, KVConnector
from core.engine.request import Request
from core.engine.step import StepPlan, StepResult, TokenMasks
from core.plugins.drivers import describe
from core.plugins.faults import Faults

MOST_STATS = 64
"""Most figures of one connector: each is a time series of whoever reads `/metrics`."""


class StageParticipant:
    """Base of all participants: does nothing at every stage."""

    def arrive(self, request: Request) -> None:
        """`request` joins the line. Raises `ValueError` to refuse it."""

    def admit(self, request: Request) -> bool:
        """Say whether `request` may be admitted now; False leaves it waiting, and those behind it pass.

        Raises:
            ValueError: It can never be admitted; it ends with this error.
        """
        return True

    def supply(self, request: Request, hashes: Sequence[bytes], local_blocks: int) -> int:
        """Return how many blocks right after the first `local_blocks` this participant can fill."""
        return 0

    def enter(self, request: Request) -> bool:
        """`request` got its row; say whether the row is in lockstep: no token is sampled before the last is known."""
        return False

    def place(self, request: Request, supplied: Sequence[BlockRef]) -> bool:
        """`supplied` are for what this participant promised to fill; False if it cannot: they are computed then.

        They belong into `loads` of the plan that follows. What its worker side does not fill is computed as well.
        """
        return False

    def publish(self, blocks: Sequence[BlockRef]) -> None:
        """These blocks will hold complete, verified content when the step being planned has run.

        What rests on blocks that were promised is told of when those have come.
        """

    def plan(self, plan: StepPlan) -> None:
        """Add to the plan before it is launched. One that sets `masks_follow` is asked for `masks` afterwards."""

    def masks(self, plan: StepPlan) -> TokenMasks | None:
        """Say which tokens may be sampled, once the plan is launched: its forward pass runs meanwhile."""
        return None

    def collect(self, result: StepResult) -> None:
        """Read a step's result before it is settled."""

    def settle(self, requests: Sequence[Request | None], tokens: np.ndarray) -> Mapping[int, str]:
        """These `requests` got these `tokens (n,)` int32; return index -> error for those that must end.

        None stands for a request that has just ended.
        """
        return {}

    def paces(self) -> Mapping[int, bool]:
        """Return row -> whether it is in lockstep from now on, for those where `settle` has changed that.

        A row that another participant put into lockstep is not named.
        """
        return {}

    def finish(self, request: Request) -> None:
        """`request` ended, for whatever reason."""

    def reset(self) -> None:
        """Forget everything that was derived from the model's weights."""

    def close(self) -> None:
        """The engine stops."""


class ConnectorParticipant(StageParticipant):
    """Plugs a KV connector's engine side into the stages. What it raises is a miss; too much of it switches it off."""

    def __init__(self, name: str, connector: KVConnector, faults: Faults) -> None:
        self.name = name
        self.connector = connector
        self.faults = faults
        self._ordered: list[int] = []
        self._open = True

    def supply(self, request: Request, hashes: Sequence[bytes], local_blocks: int) -> int:
        """Ask the connector what it can load behind the local prefix."""
        if self.faults.off:
            return 0
        try:
            return operator.index(self.connector.match(hashes, local_blocks))
        except Exception as error:
            self.faults.raised("match()", error)
            return 0

    def place(self, request: Request, supplied: Sequence[BlockRef]) -> bool:
        """Order the promised loads."""
        try:
            self.connector.load(supplied)
        except Exception as error:
            self.faults.raised("load()", error)
            return False
        self._ordered += [ref.block for ref in supplied]
        return True

    def publish(self, blocks: Sequence[BlockRef]) -> None:
        """Offer complete blocks for keeping."""
        if self.faults.off:
            return
        try:
            self.connector.save(blocks)
        except Exception as error:
            self.faults.raised("save()", error)

    def plan(self, plan: StepPlan) -> None:
        """Attach what was ordered and the connector's message for its worker side, which is closed when it is off.

        What it wanted to be moved is unknown when it fails, and wrong by the next step: it is asked no more.
        """
        ordered, self._ordered = self._ordered, []
        if self.faults.off and not ordered:
            if self._open:
                plan.leaving.append(self.name)
            self._open = False
            return
        if ordered:
            plan.loads[self.name] = ordered
        try:
            message = self.connector.plan_step()
            if message is not None:
                plan.connector[self.name] = bytes(memoryview(message))
            elif ordered:
                self.faults.note("plan_step() gave no message, and blocks were to be loaded")
        except Exception as error:
            self.faults.note(f"plan_step() raised {describe(error)}", fatal=True)

    def collect(self, result: StepResult) -> None:
        """Account for what its worker side failed at, and hand that side's report to the connector."""
        for fault in result.faults.get(self.name, ()):
            self.faults.note(fault)
        report = result.connector.get(self.name)
        if report is None or self.faults.off:
            return
        try:
            self.connector.observe(report)
        except Exception as error:
            self.faults.raised("observe()", error)

    def reset(self) -> None:
        """Make the connector forget its blocks. One that cannot would supply what is not true any more."""
        try:
            self.connector.reset()
        except Exception as error:
            self.faults.note(f"reset() raised {describe(error)}", fatal=True)

    def stats(self) -> dict[str, int]:
        """Return the connector's figures, at most `MOST_STATS`; none if it cannot tell."""
        try:
            return {str(name): _counted(value) for name, value in islice(self.connector.stats().items(), MOST_STATS)}
        except Exception as error:
            self.faults.raised("stats()", error)
            return {}


def _counted(value: object) -> int:
    """Return a figure. Raises `TypeError` for what is no integer, `OverflowError` for one that no message can carry."""
    number = operator.index(value)  # type: ignore[arg-type]
    if not -(2**63) <= number < 2**63:
        raise OverflowError(f"a figure has {number.bit_length()} bits, more than 64")
    return number
