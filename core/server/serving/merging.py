"""Several streams read as one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import TypeVar, cast

T = TypeVar("T")


async def merge(streams: Sequence[AsyncIterator[T]]) -> AsyncGenerator[tuple[int, T], None]:
    """Yield the items of all streams with the index of their stream, as they come; closing closes every stream."""
    if len(streams) == 1:
        async with aclosing(cast(AsyncGenerator[T, None], streams[0])) as only:
            async for item in only:
                yield 0, item
        return
    # Small, so that a slow reader holds the streams back instead of filling memory.
    queue: asyncio.Queue[tuple[int, T] | BaseException | None] = asyncio.Queue(maxsize=len(streams))
    tasks = [asyncio.create_task(_pump(queue, index, stream)) for index, stream in enumerate(streams)]
    try:
        left = len(tasks)
        while left:
            entry = await queue.get()
            if entry is None:
                left -= 1
            elif isinstance(entry, BaseException):
                raise entry
            else:
                yield entry
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _pump(
    queue: asyncio.Queue[tuple[int, T] | BaseException | None], index: int, stream: AsyncIterator[T]
) -> None:
    end: BaseException | None = None
    async with aclosing(cast(AsyncGenerator[T, None], stream)) as items:
        try:
            async for item in items:
                await queue.put((index, item))
        except Exception as error:
            end = error
    await queue.put(end)
