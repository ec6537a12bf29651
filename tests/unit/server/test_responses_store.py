"""What is kept, how much, and for how long."""

import asyncio
import random

import pytest
from core_plugin_openai.responses.answer import Answer, usage_object
from core_plugin_openai.responses.store import Record, ResponseStore

from core.api.errors import RequestError

USAGE = usage_object(1, 0, 1, 0)
LARGE = 10**9


def record(name, *, status="completed", text="x"):
    answer = Answer(name, "m", {})
    answer.add({"type": "response.output_item.done", "output_index": 0, "item": {"text": text}})
    if status != "in_progress":
        answer.end(status, USAGE)
    return Record(answer, [], [])


def names(store, *candidates):
    found = []
    for name in candidates:
        try:
            found.append(store.get(name).answer.id)
        except RequestError as error:
            assert (error.status, error.code) == (404, "response_not_found")
    return found


def test_the_least_recently_used_goes_first():
    store = ResponseStore(2, LARGE)
    store.put(record("a"))
    store.put(record("b"))
    store.get("a")
    store.put(record("c"))
    assert names(store, "a", "b", "c") == ["a", "c"]


def test_bytes_are_bounded():
    store = ResponseStore(100, 4000)
    for number in range(10):
        store.put(record(str(number), text="x" * 1000))
        assert store.size <= 4000
    assert len(store) == len(names(store, *map(str, range(10)))) > 0
    assert "9" in names(store, "9")
    store.put(record("huge", text="x" * 5000))
    assert names(store, "huge") == []
    assert store.size <= 4000


def test_a_store_of_nothing():
    store = ResponseStore(0, LARGE)
    assert not store.enabled
    with pytest.raises(RequestError) as refused:
        store.get("a", param="previous_response_id")
    assert refused.value.param == "previous_response_id"
    assert "--response-store" in refused.value.message


def test_dropping_gives_the_bytes_back():
    store = ResponseStore(5, LARGE)
    store.put(record("a"))
    assert store.size > 0
    store.drop("a")
    assert (store.size, len(store)) == (0, 0)
    with pytest.raises(RequestError):
        store.drop("a")


def test_running_responses_stay_and_fill_the_store():
    store = ResponseStore(2, LARGE)
    first, second = record("a", status="in_progress"), record("b", status="in_progress")
    store.put(first)
    store.admit()
    store.put(second)
    store.put(record("c"))
    assert names(store, "a", "b", "c") == ["a", "b"]
    with pytest.raises(RequestError) as refused:
        store.admit()
    assert refused.value.status == 503
    first.answer.end("completed", USAGE)
    store.settle(first)
    store.admit()
    store.put(record("d"))
    assert names(store, "a", "b", "d") == ["b", "d"]


def test_events_count():
    store = ResponseStore(5, 2000)
    running = record("a", status="in_progress")
    store.put(running)
    before = store.size
    store.extend(running, [b"x" * 300, b"y" * 200])
    assert store.size == before + 500
    store.extend(running, [b"z" * 2000])
    assert names(store, "a") == ["a"]
    with pytest.raises(RequestError):
        store.admit()
    store.drop("a")
    store.extend(running, [b"late"])
    assert (store.size, running.log[-1]) == (0, b"late")


def test_settling_counts_what_has_been_added():
    store = ResponseStore(5, LARGE)
    running = record("a", status="in_progress")
    store.put(running)
    before = store.size
    running.answer.add({"type": "response.output_item.done", "output_index": 1, "item": {"text": "x" * 500}})
    store.settle(running)
    assert before + 500 < store.size < before + 700


def test_readers_follow_to_the_end():
    async def main():
        running = record("a", status="in_progress")
        running.append([b"0", b"1", b"2"])
        readers = [asyncio.create_task(read(running, start)) for start in (0, 2, 3)]
        await asyncio.sleep(0)
        running.append([b"3"])
        await asyncio.sleep(0)
        running.append([])
        running.answer.end("completed", USAGE)
        running.append([b"4"])
        assert await asyncio.gather(*readers) == [b"01234", b"234", b"34"]
        assert await read(running, 4) == b"4"
        assert await read(running, 5) == b""

    async def read(running, start):
        return b"".join([data async for data in running.follow(start)])

    asyncio.run(asyncio.wait_for(main(), 5))


@pytest.mark.parametrize("seed", range(10))
def test_the_count_of_bytes_stays_right_whatever_happens(seed):
    chance = random.Random(seed)
    store = ResponseStore(6, 6000)
    made = {}
    for number in range(300):
        name = chance.choice(list(made)) if made else ""
        match chance.choice(["put", "put", "extend", "end", "drop", "get"]):
            case "put":
                status = chance.choice(["completed", "in_progress"])
                name = str(number)
                made[name] = record(name, status=status, text="x" * chance.randrange(1500))
                store.put(made[name])
            case "extend" if name and not made[name].answer.ended:
                store.extend(made[name], [b"x" * chance.randrange(300)])
            case "end" if name and not made[name].answer.ended:
                made[name].answer.end("completed", USAGE)
                store.settle(made[name])
            case "drop" if names(store, name):
                store.drop(name)
            case "get":
                names(store, name)
        kept = [made[name] for name in names(store, *made)]
        assert store.size == sum(one.size for one in kept)
        assert len(store) == len(kept)
        if any(one.answer.ended for one in kept):
            assert len(kept) <= 6
            assert store.size <= 6000
        running = [one for one in made.values() if not one.answer.ended]
        if len(running) > 4:
            running[0].answer.end("completed", USAGE)
            store.settle(running[0])
