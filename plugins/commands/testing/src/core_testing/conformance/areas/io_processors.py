"""I/O processors: whatever the data is, an answer or a refusal, and nothing of one request in another."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import orjson

from core.api.errors import RequestError
from core_testing.conformance.outcome import Failed, checks, require
from core_testing.conformance.samples import IOSample
from core_testing.conformance.subject import Subject
from core_testing.conformance.tools.io_bench import IOBench
from core_testing.conformance.tools.options import every_options

_STRANGE: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    10**18,
    0.5,
    "",
    "text",
    "\u2603" * 100,
    "x" * 200_000,
    [],
    [[]],
    [None],
    [0],
    ["", "text"],
    [[1, 2], [3]],
    {},
    {"": ""},
    {"text": None, "data": 5, "image": "data:,", "url": "", "input": [[]], "prompt": {}},
)
"""Values that a client may send as `data`."""

_TOGETHER = 8


def samples_are_answered(subject: Subject) -> None:
    """The data of its samples is answered, in JSON, with what they say."""
    for bench, sample in _benches(subject):
        answer = orjson.loads(_answer(bench, sample))
        require(sample.accepts is None or bool(sample.accepts(answer)), f"'{sample.name}' is answered with {answer!r}")


def refused_data_is_refused(subject: Subject) -> None:
    """Data that its samples call wrong is refused with a `ValueError`, and the reason says something."""
    for bench, sample in _benches(subject):
        for data in sample.refused:
            try:
                bench.answer(data)
            except RequestError as error:
                require(400 <= error.status < 500, f"it refuses {data!r:.80} with status {error.status}")
                require(len(error.message.removeprefix("data:").strip()) > 3, f"it refuses {data!r:.80} without a word")
            else:
                raise Failed(f"'{sample.name}': it takes {data!r:.80}")


def strange_data_is_the_clients_fault(subject: Subject) -> None:
    """Useless data is answered or refused with a `ValueError`, whatever it is: the plugin never fails of it."""
    for bench, _ in _benches(subject):
        for data in _STRANGE:
            try:
                bench.answer(data)
            except RequestError as error:
                require(400 <= error.status < 500, f"it refuses {data!r:.80} with status {error.status}")
            except Failed as error:
                raise Failed(f"{data!r:.80}: {error}") from error


def answers_do_not_depend_on_others(subject: Subject) -> None:
    """The same data gets the same answer alone, after other data, and beside it in several threads."""
    for bench, sample in _benches(subject):
        alone = _answer(bench, sample)
        others = [*sample.others, *sample.refused]
        for data in others:
            try:
                bench.answer(data)
            except RequestError:
                continue
        require(_answer(bench, sample) == alone, f"'{sample.name}' is answered in another way after other data")
        whole = [*others, *([sample.data] * _TOGETHER)]
        with ThreadPoolExecutor(_TOGETHER) as pool:
            running = [pool.submit(bench.answer, data) for data in whole]
            found = [one.result() for one in running[len(others) :]]
            for one in running[: len(others)]:
                one.exception()
        require(set(found) == {alone}, f"'{sample.name}' is answered in another way beside others")


def _answer(bench: IOBench, sample: IOSample) -> bytes:
    try:
        return bench.answer(sample.data)
    except RequestError as error:
        raise Failed(f"it refuses '{sample.name}': {error.message}") from error


def _benches(subject: Subject) -> Iterator[tuple[IOBench, IOSample]]:
    for sample in subject.need_samples(IOSample):
        for options in every_options(subject):
            yield IOBench(subject, options, sample), sample


CHECKS = checks(
    samples_are_answered, refused_data_is_refused, strange_data_is_the_clients_fault, answers_do_not_depend_on_others
)
