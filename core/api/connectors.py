"""KV connectors: an external store of KV blocks, in two halves.

The engine side is torch-free and lives beside the scheduler; the worker side moves the bytes. They speak through
the opaque `bytes` that `plan_step` returns and the worker's `begin` receives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor


@dataclass(frozen=True, slots=True)
class BlockRef:
    """A full block of a request.

    Attributes:
        index: Its place in the request's sequence, from 0.
        hash: Chained hash: of its tokens and of everything before them.
        block: Number of the device block that holds it, `cache[block]` in the worker.
    """

    index: int
    hash: bytes
    block: int


class KVConnector(Protocol):
    """Engine side. `impl` of a `KVConnectorSpec`."""

    def __init__(self, options: Mapping[str, Any], *, block_size: int, bytes_per_block: int) -> None: ...

    def match(self, hashes: Sequence[bytes], local_blocks: int) -> int:
        """Return how many blocks right after the first `local_blocks` it can supply. No side effects."""
        ...

    def load(self, blocks: Sequence[BlockRef]) -> None:
        """These blocks were allocated for what `match` promised: fill them before the next step's forward pass.

        From this step on they are in the prefix cache: the same content is not asked for again while it is there. A
        load that fails raises in the worker's `begin`: whoever counted on the blocks ends, and nobody finds them.
        """
        ...

    def save(self, blocks: Sequence[BlockRef]) -> None:
        """These blocks hold verified content once the step that is being planned has run; keep them if you like."""
        ...

    def plan_step(self) -> bytes | None:
        """Return this step's message to the worker side, or None when there is nothing to move."""
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
        """Return figures by name, for `GET /metrics` (`core_kv_connector_stat`). Called whenever they are asked for."""
        ...


class KVConnectorWorker(Protocol):
    """Worker side. `worker_impl` of a `KVConnectorSpec`."""

    def __init__(self, options: Mapping[str, Any]) -> None: ...

    def bind(self, caches: Sequence[Tensor]) -> None:
        """Receive each layer's cache; block `b` of a layer is `cache[b]`."""
        ...

    def begin(self, message: bytes) -> None:
        """Before the forward pass: carry out loads."""
        ...

    def end(self) -> bytes | None:
        """After the forward pass: carry out saves; return a report for the engine side, or None."""
        ...

    def close(self) -> None:
        """Release what it holds; nothing is called afterwards."""
        ...
