"""How a response ends, whoever ends it."""

import asyncio

import pytest
from core_plugin_openai.responses.answer import Answer
from core_plugin_openai.responses.composer import Composer
from core_plugin_openai.responses.job import ResponseJob
from openai.types.responses import ResponseStreamEvent

from core.api import Delta, Finish, RequestError, Text, Usage
from core.api.parsers import ToolArguments, ToolEnd, ToolStart

REQUEST = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "temperature": 1.0, "top_p": 1.0}


class Prompt:
    ids = (1, 2, 3)


class Script:
    """An answer of given deltas."""

    def __init__(self, *deltas, reader=None):
        self.usage, self.prompts = Usage(prompt=3, completion=len(deltas)), {0: Prompt}
        self.closed = self.exhausted = False
        self.reader = reader
        self._deltas = deltas

    async def run(self, take, more):
        try:
            for delta in self._deltas:
                if self.reader is not None:
                    delta.events = self.reader(delta)
                if not take([delta]) and not await more():
                    return
            self.exhausted = True
        finally:
            self.closed = True


class CallPerText:
    """Reads every text as a call."""

    def __init__(self):
        self.calls = 0

    def __call__(self, delta):
        self.calls += 1
        index = self.calls - 1
        return [ToolStart(index, delta.events[0].text), ToolArguments(index, "{}"), ToolEnd(index)]


def said(text, reason=None, token=1):
    return Delta(0, [Text(text)] if text else [], [token], reason and Finish(reason))


def job(script, *, composer=None, **options):
    return ResponseJob(script, Answer("resp_1", "m", dict(REQUEST)), composer or Composer(), **options)


def run(made):
    events = []

    def put(batch):
        events.extend(batch)
        return True

    asyncio.run(made.run(put))
    return events


@pytest.mark.parametrize(
    ("reason", "status", "why"),
    [
        ("stop", "completed", None),
        ("length", "incomplete", {"reason": "max_output_tokens"}),
        ("abort", "incomplete", {"reason": None}),
    ],
)
def test_why_an_answer_ends(strict, reason, status, why):
    ended = []
    made = job(Script(said("a"), said("b", reason)), on_end=lambda: ended.append(made.answer.status))
    events = run(made)
    last = events[-1]
    assert (last["type"], last["response"]["status"]) == (f"response.{status}", status)
    assert last["response"]["incomplete_details"] == why
    assert ended == [status]
    assert (last["response"]["completed_at"] is None) == (status != "completed")
    for event in events:
        strict(ResponseStreamEvent, event)


def test_the_last_allowed_call_ends_the_generation():
    script = Script(said("one"), said("two"), said("three", "stop"), reader=CallPerText())
    made = job(script, composer=Composer(max_calls=2))
    last = run(made)[-1]
    assert [item["name"] for item in last["response"]["output"]] == ["one", "two"]
    assert last["type"] == "response.completed"
    assert script.closed
    assert not script.exhausted


def test_the_generation_behind_the_last_allowed_call_waits_for_no_client():
    class Behind:
        def __init__(self):
            self.data, self.waited = b"", 0

        def put(self, data):
            self.data += data
            return False

        async def room(self):
            self.waited += 1

    script, outlet = Script(said("one"), said("two"), said("three", "stop"), reader=CallPerText()), Behind()
    asyncio.run(job(script, composer=Composer(max_calls=2)).stream(outlet))
    assert outlet.waited == 1  # behind the first call
    assert script.closed and not script.exhausted and b"response.completed" in outlet.data


def test_what_has_ended_does_not_end_again():
    made = job(Script(said("a", "stop")))
    events = run(made)
    assert made.failed(RequestError("late", status=500)) == made.cancelled() == []
    assert made.answer.to_dict() == events[-1]["response"]


@pytest.mark.parametrize(
    ("status", "code"),
    [(500, "server_error"), (503, "server_error"), (400, "invalid_prompt"), (429, "rate_limit_exceeded")],
)
def test_failures_before_the_first_token(strict, status, code):
    made = job(Script())
    events = made.queued() + made.failed(RequestError("wrong", status=status))
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    for event in events:
        strict(ResponseStreamEvent, event)
    assert events[-1]["response"]["error"] == {"code": code, "message": "wrong"}


def test_the_background_waits_before_it_begins():
    made = job(Script(said("a", "stop")))
    kinds = [event["type"] for event in made.queued() + run(made)]
    assert kinds[:3] == ["response.created", "response.queued", "response.in_progress"]
    assert kinds.count("response.in_progress") == 1


def test_ids_behind_the_last_item_are_in_the_last_event():
    class OneCall(CallPerText):
        def __call__(self, delta):
            return super().__call__(delta) if delta.events else []

    script = Script(said("call"), said("", "stop", token=7), reader=OneCall())
    made = job(script, composer=Composer(show_ids=True))
    made.answer.prompt_ids = []
    events = run(made)
    assert events[-1]["token_ids"] == [7]
    assert events[-1]["response"]["token_ids"] == [1, 7]
    assert events[-1]["response"]["prompt_token_ids"] == [1, 2, 3]
