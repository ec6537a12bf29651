"""KV connectors as participants: the engine half's message goes to the worker half, its report goes back."""

from __future__ import annotations

from collections.abc import Iterable

from core.api.connectors import KVConnectorWorker
from core.api.participants import Parts, WorkerParticipant
from core.api.steps import StepPlan, StepResult


class ConnectorWorkerHalf(WorkerParticipant):
    """Moves blocks as the connector's engine half orders."""

    parts = Parts(plan=bytes, result=bytes)

    def __init__(self, name: str, worker: KVConnectorWorker) -> None:
        self.name = name
        self._worker = worker

    def begin(self, plan: StepPlan) -> Iterable[int] | None:
        """Hand over this step's message, if there is one; without one nothing that was ordered is filled."""
        message = plan.parts.get(self.name)
        return plan.loads.get(self.name, ()) if message is None else self._worker.begin(message)

    def end(self, plan: StepPlan, result: StepResult) -> None:
        """Let the connector save, and take its report."""
        report = self._worker.end()
        if report is not None:
            result.parts[self.name] = bytes(memoryview(report))

    def close(self) -> None:
        """Close the connector."""
        self._worker.close()
