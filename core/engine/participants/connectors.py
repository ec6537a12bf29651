"""KV connectors as participants: blocks are supplied, offered for keeping, and moved by the worker half."""

from __future__ import annotations

import operator
from collections.abc import Sequence

from core.api.connectors import KVConnector
from core.api.participants import BlockRef, Participant, Parts, StagedRequest
from core.api.steps import StepPlan, StepResult
from core.engine.participants.moments import counted
from core.plugins.drivers import describe
from core.plugins.faults import Faults


class ConnectorEngineHalf(Participant):
    """Plugs a KV connector's engine side into the stages. What it raises is a miss; too much of it switches it off."""

    parts = Parts(plan=bytes, result=bytes)

    def __init__(self, name: str, connector: KVConnector, faults: Faults) -> None:
        self.name = name
        self.connector = connector
        self.faults = faults
        self._ordered: list[int] = []
        self._open = True

    def supply(self, request: StagedRequest, hashes: Sequence[bytes], local_blocks: int) -> int:
        """Ask the connector what it can load behind the local prefix."""
        if self.faults.off:
            return 0
        try:
            return operator.index(self.connector.match(hashes, local_blocks))
        except Exception as error:
            self.faults.raised("match()", error)
            return 0

    def place(self, request: StagedRequest, supplied: Sequence[BlockRef]) -> bool:
        """Order the promised loads."""
        try:
            self.connector.load(supplied)
        except Exception as error:
            self.faults.raised("load()", error)
            return False
        self._ordered += [block for ref in supplied for block in ref.held]
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
                plan.parts[self.name] = bytes(memoryview(message))
            elif ordered:
                self.faults.note("plan_step() gave no message, and blocks were to be loaded")
        except Exception as error:
            self.faults.note(f"plan_step() raised {describe(error)}", fatal=True)

    def collect(self, plan: StepPlan, result: StepResult) -> None:
        """Account for what its worker side failed at, and hand that side's report to the connector."""
        for fault in result.faults.get(self.name, ()):
            self.faults.note(fault)
        report = result.parts.get(self.name)
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
        """Return the connector's figures; none if it cannot tell."""
        try:
            return {str(name): counted(value) for name, value in self.connector.stats().items()}
        except Exception as error:
            self.faults.raised("stats()", error)
            return {}
