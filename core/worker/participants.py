"""Stage participants around the forward pass: the worker halves of KV connectors."""

from __future__ import annotations

from typing import Protocol

from core.api.connectors import KVConnectorWorker
from core.engine.step import StepPlan, StepResult


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

    def __init__(self, name: str, worker: KVConnectorWorker) -> None:
        self._name = name
        self._worker = worker

    def begin(self, plan: StepPlan) -> None:
        """Hand over this step's message, if there is one."""
        message = plan.connector.get(self._name)
        if message is not None:
            self._worker.begin(message)

    def end(self, result: StepResult) -> None:
        """Let the connector save, and take its report."""
        report = self._worker.end()
        if report is not None:
            result.connector[self._name] = report

    def close(self) -> None:
        """Close the connector."""
        self._worker.close()
