"""Both halves of a KV connector with layers' caches between them, and the truth about what was saved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from core.api.connectors import KVConnector, KVConnectorWorker
from core.api.descriptors import KVConnectorSpec
from core.api.participants import BlockRef
from core_testing.conformance.outcome import require
from core_testing.conformance.subject import Subject
from core_testing.conformance.tools.devices import device_of

BLOCKS = 24
BLOCK_SIZE = 4
_SHAPES = (((2, BLOCK_SIZE, 2, 8), torch.float32), ((BLOCK_SIZE, 5), torch.bfloat16))


class ConnectorPair:
    """A connector as engine and worker drive it.

    Attributes:
        caches: Two caches of different shape and dtype; block b is `cache[b]`.
        groups: Cache groups of the model: the blocks of each `BlockRef`.
        content: Hash -> of each group, the bytes that its block has in every cache.
    """

    def __init__(self, subject: Subject, options: Mapping[str, Any], groups: int = 1) -> None:
        self._subject, self._options, self._closed, self.groups = subject, options, False, groups
        device = device_of(subject)
        self.caches = [torch.zeros((BLOCKS, *shape), dtype=dtype, device=device) for shape, dtype in _SHAPES]
        size = groups * sum(cache[0].nbytes for cache in self.caches)
        self.engine: KVConnector = subject.impl()(dict(options), block_size=BLOCK_SIZE, bytes_per_block=size)
        worker = subject.load(subject.spec(KVConnectorSpec).worker_impl)
        self.worker: KVConnectorWorker = worker(dict(options))
        self.worker.bind(self.caches)
        self._rng = torch.Generator().manual_seed(7)
        self.content: dict[bytes, list[list[Tensor]]] = {}

    def again(self) -> ConnectorPair:
        """Return a pair that is made again with the same options, and knows the same contents."""
        made = ConnectorPair(self._subject, self._options, self.groups)
        made.content.update(self.content)
        return made

    def close(self) -> None:
        """Close the worker's half, unless that was done here before."""
        if not self._closed:
            self._closed = True
            self.worker.close()

    def compute(self, ref: BlockRef) -> None:
        """Write a column's content into the caches, as a forward pass does."""
        if ref.hash not in self.content:
            self.content[ref.hash] = [[self._random(cache) for cache in self.caches] for _ in range(self.groups)]
        for block, values in zip(ref.blocks, self.content[ref.hash]):
            for cache, value in zip(self.caches, values) if block else ():
                cache[block] = value.view(cache.dtype).view(cache.shape[1:]).to(cache.device)

    def drop(self, *blocks: int) -> None:
        """Overwrite blocks, as other requests do."""
        for cache in self.caches:
            for block in blocks:
                cache[block] = -1

    def step(self, compute: Sequence[BlockRef] = (), *, fail: bool = False) -> None:
        """Run one step: the message, the loads, the forward pass, the saves, the report.

        Args:
            compute: Blocks that the forward pass fills.
            fail: Whether the step dies in the forward pass, so that nothing is saved or reported.
        """
        self.begin(self.engine.plan_step())
        if fail:
            return
        for block in compute:
            self.compute(block)
        report = self.worker.end()
        if report is not None:
            self.engine.observe(report)

    def keep(self, blocks: Sequence[BlockRef]) -> None:
        """Save blocks and run steps until they are stored or the connector has nothing more to do."""
        self.engine.save(blocks)
        self.step(blocks)
        for _ in range(20):
            if self.engine.match([block.hash for block in blocks], 0) == len(blocks):
                return
            self.step()

    def fetch(self, blocks: Sequence[BlockRef]) -> None:
        """Load blocks that `match` promised, before a step's forward pass."""
        self.engine.load(blocks)
        self.begin(self.engine.plan_step())

    def begin(self, message: bytes | None) -> None:
        """Hand a step's message to the worker's half, which must fill all that was ordered: nothing is in its way."""
        if message is not None:
            lost = list(self.worker.begin(message) or ())
            require(not lost, f"begin() could not fill blocks {lost}, whose content was saved before")

    def finish(self) -> None:
        """End the step that `fetch` began."""
        report = self.worker.end()
        if report is not None:
            self.engine.observe(report)

    def require_content(self, blocks: Sequence[BlockRef], when: str) -> None:
        """Require that every layer's block has the bytes of its hash."""
        for block in blocks:
            for number, values in zip(block.blocks, self.content[block.hash]):
                for layer, (cache, value) in enumerate(zip(self.caches, values)) if number else ():
                    same = torch.equal(_bytes(cache[number]), value)
                    require(same, f"{when}: block {block.index} of cache {layer} has other bytes than were saved")

    def _random(self, cache: Tensor) -> Tensor:
        # Any bytes, NaN among them: a connector copies and does not look.
        return torch.randint(0, 256, (cache[0].nbytes,), dtype=torch.uint8, generator=self._rng)


def chain(name: str, count: int, first_block: int = 1, groups: int = 1) -> list[BlockRef]:
    """Return a sequence's blocks 0 .. count - 1, with hashes of their own, in neighbouring device blocks."""
    digests = [f"{name}-{index}".encode().ljust(16, b".") for index in range(count)]
    return [BlockRef(i, digest, _numbers(first_block, i, groups)) for i, digest in enumerate(digests)]


def moved(block: BlockRef, first_block: int) -> BlockRef:
    """Return the same content in other device blocks, from `first_block` on by its place in the sequence."""
    return replace(block, blocks=_numbers(first_block, block.index, len(block.blocks)))


def _numbers(first_block: int, index: int, groups: int) -> tuple[int, ...]:
    first = first_block + index * groups
    return tuple(range(first, first + groups))


def hashes(blocks: Sequence[BlockRef]) -> list[bytes]:
    """Return the blocks' hashes."""
    return [block.hash for block in blocks]


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu").contiguous().view(torch.uint8).flatten()
