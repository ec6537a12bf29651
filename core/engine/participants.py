"""Stage participants: how features attach to the engine's loop without the loop knowing them.

The loop's stages are `admit -> place -> plan -> launch -> collect -> settle`. A participant overrides the moments it
cares about; what is not configured is not in the list.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from core.api.connectors import BlockRef, KVConnector
from core.engine.request import Request
from core.engine.step import StepPlan, StepResult, TokenMasks


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

    def place(self, request: Request, supplied: Sequence[BlockRef]) -> None:
        """`request` got its blocks; `supplied` are those that this participant promised to fill."""

    def publish(self, blocks: Sequence[BlockRef]) -> None:
        """These blocks will hold complete, verified content when the step being planned has run."""

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
    """Drives the engine side of one KV connector."""

    def __init__(self, name: str, connector: KVConnector) -> None:
        self.name, self.connector = name, connector

    def supply(self, request: Request, hashes: Sequence[bytes], local_blocks: int) -> int:
        """Ask the connector what it can load behind the local prefix."""
        return self.connector.match(hashes, local_blocks)

    def place(self, request: Request, supplied: Sequence[BlockRef]) -> None:
        """Order the promised loads."""
        if supplied:
            self.connector.load(supplied)

    def publish(self, blocks: Sequence[BlockRef]) -> None:
        """Offer complete blocks for keeping."""
        self.connector.save(blocks)

    def plan(self, plan: StepPlan) -> None:
        """Attach the connector's message for its worker side."""
        message = self.connector.plan_step()
        if message is not None:
            plan.connector[self.name] = message

    def collect(self, result: StepResult) -> None:
        """Hand the worker side's report to the connector."""
        report = result.connector.get(self.name)
        if report is not None:
            self.connector.observe(report)

    def reset(self) -> None:
        """Make the connector forget its blocks."""
        self.connector.reset()
