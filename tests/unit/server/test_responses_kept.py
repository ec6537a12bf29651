"""The official client against a server that keeps responses: read again, continued, followed, cancelled, forgotten."""

import time
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest


@pytest.fixture
def server(live, fake):
    with live(fake(reply="Hello"), api_key="sk-x", response_store=4) as running:
        yield running


@pytest.fixture
def client(server):
    with openai.OpenAI(
        base_url=f"{server.url}/v1", api_key="sk-x", max_retries=0, timeout=10, _strict_response_validation=True
    ) as client:
        yield client


@pytest.fixture
def ended(client, until):
    """Wait until a response has ended and return it."""

    def ended(name):
        until(lambda: client.responses.retrieve(name).status not in ("queued", "in_progress"))
        return client.responses.retrieve(name)

    return ended


def held(server):
    """Let the model stop in the middle of its answer."""
    server.llm.hold_at = 2


@pytest.mark.covers("API-01")
def test_responses_can_be_read_again(client):
    made = client.responses.create(input="Hi", metadata={"a": "b"})
    assert client.responses.retrieve(made.id) == made
    client.responses.delete(made.id)
    with pytest.raises(openai.NotFoundError) as gone:
        client.responses.retrieve(made.id)
    assert gone.value.code == "response_not_found"
    with pytest.raises(openai.NotFoundError):
        client.responses.delete(made.id)


@pytest.fixture
def forgetful(live, fake):
    """The client of a server that keeps nothing."""
    with live(fake(reply="Hello")) as running, openai.OpenAI(base_url=f"{running.url}/v1", api_key="x") as client:
        yield client


def told(raw):
    """Return what an answer's header says about its being kept."""
    return raw.headers["x-core-response-stored"]


@pytest.mark.covers("API-01")
@pytest.mark.parametrize(("store", "kept"), [(None, True), (True, True), (False, False)])
@pytest.mark.parametrize("stores", [True, False], ids=["a server that keeps", "one that does not"])
def test_header_and_field_say_whether_a_response_is_kept(client, forgetful, store, kept, stores):
    """`store: true` is the default of OpenAI's API: it is answered whether this server keeps responses or not."""
    asked, kept = client if stores else forgetful, kept and stores
    fields = {"input": "Hi", **({} if store is None else {"store": store})}
    whole = asked.responses.with_raw_response.create(**fields)
    streamed = asked.responses.with_raw_response.create(**fields, stream=True)
    events = list(streamed.parse())
    assert told(whole) == told(streamed) == str(kept).lower()
    said = [event.response for event in events if hasattr(event, "response")]
    assert len(said) == 3 and {response.store for response in said} == {kept}
    for response in (whole.parse(), events[-1].response):
        assert (response.output_text, response.store) == ("Hello", kept)
        if kept:
            assert asked.responses.retrieve(response.id).store is True
            continue
        with pytest.raises(openai.NotFoundError, match="It was not kept" if stores else "start it with") as gone:
            asked.responses.create(input="Go on.", previous_response_id=response.id)
        assert (gone.value.code, gone.value.param) == ("response_not_found", "previous_response_id")


def test_a_response_in_the_background_is_kept_or_refused(client, forgetful):
    made = client.responses.with_raw_response.create(input="Hi", background=True)
    assert (told(made), made.parse().store) == ("true", True)
    with pytest.raises(openai.BadRequestError, match="--response-store") as refused:
        forgetful.responses.create(input="Hi", background=True, store=True)
    assert refused.value.param == "background"


def test_a_response_larger_than_the_store_says_in_the_end_that_it_is_not_kept(live, fake):
    thought = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "y" * 2**16}]}
    items = [{"role": "user", "content": "x"}, thought]
    with (
        live(fake(reply="Hello"), response_store=4, response_store_bytes=2**16) as running,
        openai.OpenAI(base_url=f"{running.url}/v1", api_key="x") as client,
    ):
        first, *_, last = client.responses.create(input=items, stream=True)
    assert (first.response.store, last.response.store) == (True, False)


def test_a_response_that_failed_is_not_kept(client, server):
    server.llm.fail_at, server.llm.failure = 2, openai.OpenAIError("broken")
    *_, last = client.responses.create(input="Hi", stream=True)
    assert (last.type, last.response.store) == ("response.failed", False)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(last.response.id)


def test_streamed_responses_are_kept(client):
    with client.responses.stream(input="Hi", model="acme/tiny") as stream:
        final = stream.get_final_response()
    assert client.responses.retrieve(final.id).output_text == "Hello"


@pytest.mark.covers("API-01")
def test_a_conversation_goes_on(client, server):
    first = client.responses.create(input="one", instructions="Only now.")
    second = client.responses.create(input="two", previous_response_id=first.id)
    third = client.responses.create(input="three", previous_response_id=second.id)
    assert third.previous_response_id == second.id
    said = [(message["role"], message["content"]) for message in server.llm.rendered[-1]["messages"]]
    assert said == [
        ("user", "one"),
        ("assistant", "Hello"),
        ("user", "two"),
        ("assistant", "Hello"),
        ("user", "three"),
    ]
    client.responses.delete(second.id)  # what continues it has its own
    client.responses.create(input="four", previous_response_id=third.id)
    assert len(server.llm.rendered[-1]["messages"]) == 7


def test_the_oldest_make_room(client):
    made = [client.responses.create(input=str(number)).id for number in range(5)]
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(made[0])
    with pytest.raises(openai.NotFoundError) as gone:
        client.responses.create(input="x", previous_response_id=made[0])
    assert gone.value.param == "previous_response_id"
    assert client.responses.retrieve(made[1]).id == made[1]


def test_input_items(client):
    items = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
        {"type": "function_call", "call_id": "c", "name": "add", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "3"},
        {"type": "reasoning", "summary": [], "id": "rs_1", "content": [{"type": "reasoning_text", "text": "hm"}]},
        {"role": "assistant", "content": "3"},
    ]
    made = client.responses.create(input=items)
    listed = list(client.responses.input_items.list(made.id, order="asc", limit=2))
    kinds = ["message", "message", "function_call", "function_call_output", "reasoning", "message"]
    assert [item.type for item in listed] == kinds
    assert list(client.responses.input_items.list(made.id)) == listed[::-1]
    page = client.responses.input_items.list(made.id, limit=4)
    assert (page.has_more, len(page.data)) == (True, 4)
    page = client.responses.input_items.list(made.id, after=listed[1].id, order="desc")
    assert ([item.id for item in page.data], page.has_more) == ([listed[0].id], False)
    for fields in ({"after": "nobody"}, {"limit": 0}, {"limit": 101}, {"order": "up"}):
        with pytest.raises(openai.BadRequestError) as refused:
            client.responses.input_items.list(made.id, **fields)
        assert refused.value.param in fields


@pytest.mark.covers("API-01")
def test_in_the_background(client, server, ended):
    held(server)
    made = client.responses.create(input="Hi", background=True)
    assert made.status in ("queued", "in_progress")
    assert (made.output, made.background) == ([], True)
    assert client.responses.retrieve(made.id).status in ("queued", "in_progress")
    with pytest.raises(openai.BadRequestError) as early:
        client.responses.create(input="more", previous_response_id=made.id)
    assert early.value.param == "previous_response_id"
    server.llm.held.set()
    final = ended(made.id)
    assert (final.status, final.output_text) == ("completed", "Hello")
    assert final.usage.output_tokens == 5


@pytest.mark.covers("API-01")
def test_cancelling(client, server, until):
    held(server)
    made = client.responses.create(input="Hi", background=True)
    until(lambda: server.llm.running == 1)
    cancelled = client.responses.cancel(made.id)
    assert cancelled.status == "cancelled"
    assert server.llm.aborted == [made.id]
    assert client.responses.cancel(made.id) == cancelled == client.responses.retrieve(made.id)
    with pytest.raises(openai.BadRequestError) as refused:
        client.responses.create(input="more", previous_response_id=made.id)
    assert "cancelled" in refused.value.message


def test_only_the_background_is_cancelled(client):
    made = client.responses.create(input="Hi")
    with pytest.raises(openai.BadRequestError):
        client.responses.cancel(made.id)
    with pytest.raises(openai.BadRequestError):
        client.responses.retrieve(made.id, stream=True)


def test_deleting_ends_the_work(client, server, until):
    held(server)
    made = client.responses.create(input="Hi", background=True)
    until(lambda: server.llm.running == 1)
    client.responses.delete(made.id)
    assert server.llm.aborted == [made.id]


@pytest.mark.covers("API-01")
def test_a_background_stream_can_be_left_and_resumed(client, server, ended):
    held(server)
    seen = []
    with client.responses.create(input="Hi", background=True, stream=True) as stream:
        for event in stream:
            seen.append(event)
            if event.type == "response.output_text.delta":
                break
    assert [event.type for event in seen[:3]] == ["response.created", "response.queued", "response.in_progress"]
    assert seen[0].response.status == "queued"
    name, last = seen[0].response.id, seen[-1].sequence_number
    with client.responses.retrieve(name, stream=True, starting_after=last) as stream:
        server.llm.held.set()
        seen += stream
    assert [event.sequence_number for event in seen] == list(range(len(seen)))
    assert seen[-1].type == "response.completed"
    assert "".join(event.delta for event in seen if event.type == "response.output_text.delta") == "Hello"
    final = ended(name)
    assert seen[-1].response.output == final.output
    with client.responses.retrieve(name, stream=True) as stream:
        assert [event.sequence_number for event in stream] == list(range(len(seen)))
    for after in (len(seen), -1):
        with pytest.raises(openai.BadRequestError):
            client.responses.retrieve(name, stream=True, starting_after=after)


def test_a_cancelled_stream_ends(client, server, until):
    held(server)
    made = client.responses.create(input="Hi", background=True)
    until(lambda: server.llm.running == 1)
    with ThreadPoolExecutor(1) as pool, client.responses.retrieve(made.id, stream=True) as stream:
        pool.submit(client.responses.cancel, made.id)
        events = list(stream)
    assert (events[-1].type, events[-1].response.status) == ("response.incomplete", "cancelled")
    assert events[-1].response.output[0].content[0].text == "He"


def test_a_failure_in_the_background(client, server, ended, engine_error):
    server.llm.fail_at, server.llm.failure = 2, engine_error
    made = client.responses.create(input="Hi", background=True)
    final = ended(made.id)
    assert (final.status, final.error.code, final.output_text) == ("failed", "server_error", "He")


def test_the_background_is_full_some_time(client, server, until):
    held(server)
    for _ in range(4):
        client.responses.create(input="Hi", background=True)
    with pytest.raises(openai.InternalServerError) as full:
        client.responses.create(input="Hi", background=True)
    assert (full.value.status_code, full.value.code) == (503, "queue_full")
    server.llm.held.set()
    until(lambda: server.llm.running == 0)
    assert client.responses.create(input="Hi", background=True).error is None


def test_a_client_that_goes_away_ends_its_response(client, server, until):
    held(server)
    with client.responses.create(input="Hi", stream=True) as stream:
        next(iter(stream))
    until(lambda: server.llm.running == 0)
    assert len(server.llm.aborted) == 1


def test_a_server_that_stops_says_so(client, server, until):
    held(server)
    with client.responses.create(input="Hi", stream=True) as stream:
        events = iter(stream)
        seen = [next(events)]
        until(lambda: server.llm.running == 1)
        time.sleep(0.05)
        server.loop.call_soon_threadsafe(server.state.lifecycle.stop)
        seen += events
    assert (seen[-1].type, seen[-1].response.status) == ("response.failed", "failed")


def test_typed_answers(client, server):
    from pydantic import BaseModel

    class Point(BaseModel):
        x: int

    server.llm.reply, server.llm.grammars = '{"x": 3}', True
    answer = client.responses.parse(input="Hi", text_format=Point, model="acme/tiny")
    assert answer.output_parsed == Point(x=3)
    assert server.llm.requests[0]["params"].grammar.kind == "json_schema"


def test_input_tokens(client, server):
    counted = client.responses.input_tokens.count(input="Hi", model="acme/tiny")
    assert counted.input_tokens == 1 + len("[user]Hi")
