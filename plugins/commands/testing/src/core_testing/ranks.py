"""Ranks of one model as threads of this process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from core.api.ranks import Ranks

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["run_ranks"]

T = TypeVar("T")


def run_ranks(size: int, work: Callable[[Ranks, Callable[[Tensor], Tensor]], T]) -> list[T]:
    """Return what `work(ranks, all_reduce)` returns on each of `size` ranks.

    Every rank has to sum equally often; if `work` raises on one of them, all end, and its error is raised.
    """
    addends: list[Tensor | None] = [None] * size
    barrier = threading.Barrier(size)

    def all_reduce(rank: int, addend: Tensor) -> Tensor:
        addends[rank] = addend
        barrier.wait()
        # In the order of the ranks on each of them, so that all have the same bits.
        total = sum(one for one in addends if one is not None)
        barrier.wait()
        return total  # type: ignore[return-value]

    def run(rank: int) -> T:
        try:
            return work(Ranks(rank, size), lambda addend: all_reduce(rank, addend))
        except BaseException:
            barrier.abort()
            raise

    with ThreadPoolExecutor(size) as pool:
        futures = [pool.submit(run, rank) for rank in range(size)]
    errors = [error for future in futures if (error := future.exception()) is not None]
    # A rank that waited for the one that failed has nothing to say.
    for error in sorted(errors, key=lambda one: isinstance(one, threading.BrokenBarrierError)):
        raise error
    return [future.result() for future in futures]
