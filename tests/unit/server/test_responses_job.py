"""How a response ends, whoever ends it."""

import asyncio
from contextlib import aclosing

import pytest
from openai.types.responses import ResponseStreamEvent

from core.api.parsers import ToolArguments, ToolEnd, ToolStart
from core.frontend.answering.reader import AnswerReader
from core.frontend.prompts import prompt_ids
from core.frontend.results import CompletionOutput, RequestOutput
from core.server.errors import ApiError
from core.server.generation import Usage
from core.server.openai.responses.answer import Answer
from core.server.openai.responses.composer import Composer
from core.server.openai.responses.job import ResponseJob

REQUEST = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "temperature": 1.0, "top_p": 1.0}


class Script:
    """A generation of given outputs."""

    def __init__(self, *sequences):
        self.usage = Usage(prompt=3, completion=len(sequences))
        self.closed = self.exhausted = False
        self._sequences = sequences

    async def outputs(self):
        try:
            for sequence in self._sequences:
                yield 0, RequestOutput("r", None, prompt_ids((1, 2, 3)), [sequence])
            self.exhausted = True
        finally:
            self.closed = True

    async def run(self, take, more):
        async with aclosing(self.outputs()) as outputs:
            async for index, output in outputs:
                if not take(index, output) and not await more():
                    return


class CallPerText:
    """Reads every text as a call."""

    def __init__(self):
        self.calls = 0

    def read(self, sequence):
        self.calls += 1
        index = self.calls - 1
        return [ToolStart(index, sequence.text), ToolArguments(index, "{}"), ToolEnd(index)]


def said(text, reason=None):
    return CompletionOutput(0, text, [1], finish_reason=reason)


def job(script, **options):
    return ResponseJob(
        script,
        Answer("resp_1", "m", dict(REQUEST)),
        options.pop("composer", None) or Composer(),
        options.pop("reader", None) or AnswerReader(None, calls=False),
        **options,
    )


def run(made):
    async def go():
        return [event async for batch in made.batches() for event in batch]

    return asyncio.run(go())


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
    script = Script(said("one"), said("two"), said("three", "stop"))
    made = job(script, composer=Composer(max_calls=2), reader=CallPerText())
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

    script, outlet = Script(said("one"), said("two"), said("three", "stop")), Behind()
    asyncio.run(job(script, composer=Composer(max_calls=2), reader=CallPerText()).stream(outlet))
    assert outlet.waited == 1  # behind the first call
    assert script.closed and not script.exhausted and b"response.completed" in outlet.data


def test_what_has_ended_does_not_end_again():
    made = job(Script(said("a", "stop")))
    events = run(made)
    assert made.failed(ApiError(500, "late")) == made.cancelled() == []
    assert made.answer.to_dict() == events[-1]["response"]


@pytest.mark.parametrize(
    ("status", "code"),
    [(500, "server_error"), (503, "server_error"), (400, "invalid_prompt"), (429, "rate_limit_exceeded")],
)
def test_failures_before_the_first_token(strict, status, code):
    made = job(Script())
    events = made.queued() + made.failed(ApiError(status, "wrong"))
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
    script = Script(said("call"), CompletionOutput(0, "", [7], finish_reason="stop"))

    class OneCall(CallPerText):
        def read(self, sequence):
            return super().read(sequence) if sequence.text else []

    made = job(script, composer=Composer(show_ids=True), reader=OneCall())
    made.answer.prompt_ids = []
    events = run(made)
    assert events[-1]["token_ids"] == [7]
    assert events[-1]["response"]["token_ids"] == [1, 7]
    assert events[-1]["response"]["prompt_token_ids"] == [1, 2, 3]
