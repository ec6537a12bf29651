"""Stage participants around the forward pass: the worker halves of KV connectors."""

from __future__ import annotations

import logging
import operator
from collections.abc import Sequence
from typing import Protocol

from core.api.connectors import KVConnectorWorker
from core.engine.step import StepPlan, StepResult
from core.plugins.drivers import describe

logger = logging.getLogger(__name__)


class Participant(Protocol):
    """Takes part in every step. The list of participants is fixed at start-up, but for those that a plan dismisses."""

    name: str

    def begin(self, plan: StepPlan) -> Sequence[int]:
        """Act before the forward pass; return the blocks of the plan's `loads` under its name that were not filled."""
        ...

    def end(self, result: StepResult) -> None:
        """Act after it."""
        ...

    def close(self) -> None: ...


class ConnectorParticipant:
    """Passes the engine half's message to a connector's worker half, and its report back.

    What the worker half fails at is told with the step's result, to the engine's side of this connector.

    Args:
        owner: Kind, name, distribution and version of the connector, for the log.
    """

    def __init__(self, name: str, worker: KVConnectorWorker, owner: str) -> None:
        self.name = name
        self._worker = worker
        self._owner = owner
        self._faults: list[str] = []
        self._began = True

    def begin(self, plan: StepPlan) -> Sequence[int]:
        """Hand over this step's message, if there is one. When the connector raises, none of its loads is trusted."""
        self._faults, self._began = [], True
        wanted, message = plan.loads.get(self.name, ()), plan.connector.get(self.name)
        if message is None:
            return wanted
        try:
            lost = [operator.index(block) for block in self._worker.begin(message) or ()]
            if not set(lost) <= set(wanted):
                raise ValueError(f"it names blocks that were not to be loaded: {sorted(set(lost) - set(wanted))[:8]}")
        except Exception as error:
            self._faults.append(f"begin() raised {describe(error)}")
            self._began = False
            return wanted
        if lost:
            self._faults.append(f"{len(lost)} of {len(wanted)} blocks could not be loaded")
        return lost

    def end(self, result: StepResult) -> None:
        """Let the connector save, and take its report. A step that it could not begin has no end for it."""
        if self._began:
            self._save(result)
        if self._faults:
            result.faults[self.name] = self._faults

    def close(self) -> None:
        """Close the connector."""
        try:
            self._worker.close()
        except Exception as error:
            logger.warning("CORE-P161 %s: close() raised %s; it is taken for closed.", self._owner, describe(error))

    def _save(self, result: StepResult) -> None:
        """Call the connector's `end`. What it fails to save is not there later: no request ends."""
        try:
            report = self._worker.end()
            if report is not None:
                result.connector[self.name] = bytes(memoryview(report))
        except Exception as error:
            self._faults.append(f"end() raised {describe(error)}")
