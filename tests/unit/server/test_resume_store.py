"""Events of resumable streams: numbered, kept in bounded memory, each read once."""

from __future__ import annotations

import asyncio
import random

import pytest
from core_plugin_resumable.store import SHARE, STREAM_BYTES, StreamStore

from core.api import RequestError

BIG = 2**20


def run(main):
    return asyncio.run(asyncio.wait_for(main(), 20))


def opened(store, gone=None):
    return store.open("/v1/x", [], gone or (lambda: None))


async def read_all(store, stream, after=0):
    token = store.attach(stream, after)
    try:
        return b"".join([data async for data in store.events(stream, token)])
    finally:
        store.detach(stream, token)


def numbers(data):
    return [int(part.split(b"\n")[0].removeprefix(b"id: ")) for part in data.split(b"\n\n") if part]


def test_events_are_numbered_and_read_from_anywhere():
    async def main():
        store = StreamStore(10, BIG)
        stream = opened(store)
        for text in (b"data: a", b"event: x\ndata: b", b"data: [DONE]"):
            await store.append(stream, text)
        store.finish(stream)
        whole = b"id: 1\ndata: a\n\nid: 2\nevent: x\ndata: b\n\nid: 3\ndata: [DONE]\n\n"
        assert await read_all(store, stream) == whole
        assert await read_all(store, stream, 1) == whole[whole.index(b"id: 2") :]
        assert await read_all(store, stream, 3) == b""
        with pytest.raises(RequestError, match="no event 4"):
            store.attach(stream, 4)
        assert store.find(stream.id) is stream

    run(main)


def test_a_reader_that_breaks_off_anywhere_gets_every_event_once():
    async def main():
        order = random.Random(0)
        for _ in range(20):
            store = StreamStore(10, BIG)
            stream = opened(store)

            async def write(stream=stream, store=store):
                for index in range(60):
                    await store.append(stream, b"data: %d" % index)
                    await asyncio.sleep(0)
                store.finish(stream)

            writing = asyncio.create_task(write())
            got: list[int] = []
            while len(got) < 60:
                token = store.attach(stream, got[-1] if got else 0)
                patience = order.randrange(1, 6)
                async for data in store.events(stream, token):
                    got += numbers(data)
                    patience -= 1
                    if not patience:
                        break
                store.detach(stream, token)
                await asyncio.sleep(0)
            await writing
            assert got == list(range(1, 61))

    run(main)


def test_a_new_reader_takes_the_stream_over():
    async def main():
        store = StreamStore(10, BIG)
        stream = opened(store)
        first = asyncio.create_task(read_all(store, stream))
        await asyncio.sleep(0)
        second = asyncio.create_task(read_all(store, stream))
        assert await first == b""
        await store.append(stream, b"data: x")
        store.finish(stream)
        assert numbers(await second) == [1]

    run(main)


def test_time_runs_only_without_a_reader():
    async def main():
        ended = []
        store = StreamStore(0.05, BIG)
        stream = opened(store, lambda: ended.append(1))
        token = store.attach(stream, 0)
        await asyncio.sleep(0.12)
        assert not ended and store.find(stream.id)
        store.detach(stream, token)
        await asyncio.sleep(0.12)
        assert ended == [1] and store.all() == [] and store.size == 0
        with pytest.raises(RequestError) as caught:
            store.find(stream.id)
        assert caught.value.status == 404
        await store.append(stream, b"data: late")
        assert store.size == 0

    run(main)


def test_a_finished_stream_that_is_dropped_ends_nothing():
    async def main():
        ended = []
        store = StreamStore(0.05, BIG)
        stream = opened(store, lambda: ended.append(1))
        store.finish(stream)
        await asyncio.sleep(0.12)
        assert (store.all(), ended) == ([], [])

    run(main)


def test_a_full_memory_drops_the_oldest_finished_stream_first():
    async def main():
        limit = 100_000
        store = StreamStore(10, limit)
        done = [opened(store) for _ in range(3)]
        piece = b"x" * (limit // SHARE - STREAM_BYTES - 100)
        for stream in done:
            await store.append(stream, piece)
        running = [opened(store) for _ in range(5)]
        for stream in done:
            store.finish(stream)
        for stream in running:
            await store.append(stream, piece)
        assert store.all() == [*done, *running]
        extra = opened(store)
        await store.append(extra, piece)
        assert store.all() == [*done[1:], *running, extra]
        assert store.size <= limit

    run(main)


def test_a_stream_has_its_share_and_a_slow_reader_holds_it_back():
    async def main():
        limit = 80_000
        store = StreamStore(10, limit)
        stream = opened(store)
        token = store.attach(stream, 0)
        reading = store.events(stream, token)

        async def write():
            for _ in range(100):
                await store.append(stream, b"x" * 990)
            store.finish(stream)

        writing = asyncio.create_task(write())
        await asyncio.sleep(0.01)
        assert stream.size <= limit // SHARE and stream.last == 10
        got = []
        async for data in reading:
            got += numbers(data)
            await asyncio.sleep(0)
            assert stream.size <= limit // SHARE
        await writing
        assert got == list(range(1, 101))
        store.detach(stream, token)
        with pytest.raises(RequestError) as caught:
            store.attach(stream, 0)
        assert caught.value.status == 410

    run(main)


def test_many_short_streams_are_bounded_too():
    async def main():
        store = StreamStore(10, 2**16)
        for _ in range(500):
            stream = opened(store)
            await store.append(stream, b"data: x")
            store.finish(stream)
        assert len(store.all()) < 2**16 / STREAM_BYTES + 1
        assert store.all()[-1] is stream

    run(main)


def test_a_stream_that_waits_for_room_is_let_go_when_it_is_dropped():
    async def main():
        store = StreamStore(0.05, 2**16)
        stream = opened(store)

        async def write():
            for _ in range(100):
                await store.append(stream, b"x" * 1000)

        await asyncio.wait_for(write(), 5)
        assert stream.gone and store.size == 0

    run(main)
