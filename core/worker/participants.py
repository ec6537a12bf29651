"""Stage participants around the forward pass: the worker halves of KV connectors."""

from __future__ import annotations

from typing import Protocol

from core.api.connectors import KVConnectorWorker
from core.api.errors import PluginError
from core.engine.step import StepPlan, StepResult
from core.plugins.faults import Faults


class Participant(Protocol):
    """Takes part in every step. The list of participants is fixed at start-up."""

    def begin(self, plan: StepPlan) -> None:
        """Act before the forward pass."""
        ...

    def end(self, result: StepResult) -> None:
        """Act after it."""
        ...

    def close(self) -> None: ...


class ConnectorParticipant:
    """Passes the engine half's message to a connector's worker half, and its report back."""

    def __init__(self, name: str, worker: KVConnectorWorker, faults: Faults) -> None:
        self._name = name
        self._worker = worker
        self.faults = faults

    def begin(self, plan: StepPlan) -> None:
        """Hand over this step's message, if there is one.

        Raises:
            PluginError: CORE-P108, blocks that the step reads may be missing.
        """
        message = plan.connector.get(self._name)
        if message is None:
            return
        try:
            self._worker.begin(message)
        except Exception as error:
            self.faults.raised("begin()", error)
            raise PluginError("CORE-P108", f"{self.faults.owner}: {self.faults.last}.") from error

    def end(self, result: StepResult) -> None:
        """Let the connector save, and take its report. What it fails to save is not there later: no request ends."""
        try:
            report = self._worker.end()
            if report is not None:
                result.connector[self._name] = bytes(memoryview(report))
        except Exception as error:
            self.faults.raised("end()", error)

    def close(self) -> None:
        """Close the connector."""
        try:
            self._worker.close()
        except Exception as error:
            self.faults.raised("close()", error)
