"""KV connectors: an external store of KV blocks, in two halves.

The engine side is torch-free and lives beside the scheduler; the worker side moves the bytes. They speak through
the opaque `bytes` that `plan_step` returns and the worker's `begin` receives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from torch import Tensor

    from core.api.participants import BlockRef


class KVConnector(Protocol):
    """Engine side. `impl` of a `KVConnectorSpec`."""

    def __init__(self, options: Mapping[str, Any], *, block_size: int, bytes_per_block: int) -> None: ...

    def match(self, hashes: Sequence[bytes], local_blocks: int) -> int:
        """Return how many blocks right after the first `local_blocks` it can supply. No side effects."""
        ...

    def load(self, blocks: Sequence[BlockRef]) -> None:
        """These blocks were allocated for what `match` promised: fill them before the next step's forward pass.

        Of the `blocks` of a ref, one for each cache group, those that are 0 are not wanted: leave device block 0 alone.

        From this step on they are in the prefix cache: the same content is not asked for again while it is there. What
        cannot be loaded is computed: the worker's `begin` says which blocks it could not fill.
        """
        ...

    def save(self, blocks: Sequence[BlockRef]) -> None:
        """These blocks hold verified content once the step that is being planned has run; keep them if you like.

        Every cache group's block is there: none of a ref's `blocks` is 0.

        What was computed on loaded blocks comes here when these are known to have arrived.
        """
        ...

    def plan_step(self) -> bytes | None:
        """Return this step's message to the worker side, or None when there is nothing to move.

        Without a message for them, loads that were ordered count as failed.
        """
        ...

    def observe(self, report: bytes) -> None:
        """Receive what the worker side reported after a step."""
        ...

    def reset(self) -> None:
        """Forget every block. The weights were replaced, a step failed, or a client asks for it.

        Blocks that are computed with new weights have other hashes, so a store that engines share may keep theirs.
        """
        ...

    def stats(self) -> dict[str, int]:
        """Return figures by name, for `GET /metrics` (`core_participant_stat`). Called whenever they are asked for."""
        ...


class KVConnectorWorker(Protocol):
    """Worker side. `worker_impl` of a `KVConnectorSpec`."""

    def __init__(self, options: Mapping[str, Any]) -> None: ...

    def bind(self, caches: Sequence[Tensor]) -> None:
        """Receive the caches, which layers of different cache groups share; block `b` is `cache[b]` in each of them."""
        ...

    def begin(self, message: bytes) -> Iterable[int] | None:
        """Before the forward pass: carry out loads.

        Returns:
            Numbers of the device blocks that could not be filled, for whatever reason; None if there is none. These
            are computed instead, and must not be written from here on. When it raises, none of the message's loads is
            relied on, and `end` is not called in this step.
        """
        ...

    def end(self) -> bytes | None:
        """After the forward pass: carry out saves; return a report for the engine side, or None.

        What could not be saved is not in the report, so that `match` does not promise it.
        """
        ...

    def close(self) -> None:
        """Release what it holds; nothing is called afterwards."""
        ...
