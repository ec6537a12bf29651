"""The Responses API of real servers by the official client: a model that says what it is told, and the demo model."""

from __future__ import annotations

import itertools
import json

import openai
import pytest
from pydantic import BaseModel

ADD = {
    "type": "function",
    "name": "add",
    "description": "Adds two numbers.",
    "parameters": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}},
    "strict": False,
}
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": %d, "b": 2}}\n</tool_call>'
SCRIPT = f"<think>\nAdd them.\n</think>\n\nLet me see.\n{CALL % 1}\n{CALL % 3}"
SALTS = (f"responses-{number}" for number in itertools.count())
KINDS = ["reasoning", "message", "function_call", "function_call"]


@pytest.fixture(scope="module")
def said(launch, scripted):
    """A client of the scripted model, and the model's name."""
    checkpoint, plugin = scripted
    parsers = ("--tool-parser", "hermes", "--reasoning-parser", "qwen3")
    flags = ("--threads", "1", "--num-blocks", "400", "--response-store", "50", "--served-model-name", "scripted")
    with launch(checkpoint, *parsers, *flags, PYTHONPATH=plugin).wait_ready().openai() as client:
        yield client


@pytest.fixture(scope="module")
def client(server):
    with server.openai() as client:
        yield client


def say(text, client, **fields):
    """Have the scripted model say a text."""
    return client.responses.create(model="scripted", input=text, **fields)


def folded(stream):
    """Put an answer together from its deltas alone, as a client does, and return it with the last event."""
    items: dict[int, list] = {}
    numbers, last = [], None
    for last in stream:
        numbers.append(last.sequence_number)
        if last.type == "response.output_item.added":
            items[last.output_index] = [last.item.type, ""]
        elif last.type.endswith(".delta"):
            items[last.output_index][1] += last.delta
    assert numbers == list(range(len(numbers)))
    return [tuple(items[index]) for index in sorted(items)], last


def contents(response):
    return [
        (item.type, item.arguments if item.type == "function_call" else item.content[0].text)
        for item in response.output
    ]


@pytest.mark.covers("API-01")
def test_thinking_text_and_calls(said):
    response = say(SCRIPT, said, tools=[ADD])
    assert [item.type for item in response.output] == KINDS
    thought, text, first, second = response.output
    assert thought.content[0].text.strip() == "Add them."
    assert text.content[0].text.strip() == "Let me see."
    assert (json.loads(first.arguments), json.loads(second.arguments)) == ({"a": 1, "b": 2}, {"a": 3, "b": 2})
    assert first.call_id != second.call_id
    assert response.status == "completed"
    assert response.usage.output_tokens == len(SCRIPT) + 1
    assert 0 < response.usage.output_tokens_details.reasoning_tokens < len(SCRIPT)


@pytest.mark.covers("API-01")
@pytest.mark.parametrize("limit", [None, 20, 60, 110])
def test_streams_and_whole_answers_agree_wherever_they_end(said, limit):
    fields = {"tools": [ADD], "max_output_tokens": limit}
    whole = say(SCRIPT, said, **fields)
    streamed, last = folded(say(SCRIPT, said, **fields, stream=True))
    assert streamed == contents(whole) == contents(last.response)
    assert last.type == f"response.{whole.status}" == f"response.{'incomplete' if limit else 'completed'}"
    assert last.response.usage == whole.usage
    assert (whole.incomplete_details is not None) == bool(limit)


def test_a_loop_of_calls(said):
    history = [{"role": "user", "content": CALL % 5}]
    asked = said.responses.create(model="scripted", input=history, tools=[ADD])
    (call,) = [item for item in asked.output if item.type == "function_call"]
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "The sum is 7."}
    whole = said.responses.create(model="scripted", input=[*history, *asked.output, result], tools=[ADD])
    assert whole.output_text == "The sum is 7."
    kept = said.responses.create(model="scripted", input=[result], tools=[ADD], previous_response_id=asked.id)
    assert kept.output_text == whole.output_text
    assert kept.usage.input_tokens == whole.usage.input_tokens


def test_the_last_call_ends_the_answer(said):
    response = say(SCRIPT, said, tools=[ADD], parallel_tool_calls=False)
    assert [item.type for item in response.output] == KINDS[:3]
    assert response.usage.output_tokens < len(SCRIPT)


@pytest.mark.covers("API-03")
def test_stop_texts_and_what_follows_the_end(said):
    assert say("one two three", said, extra_body={"stop": "two"}).output_text == "one "
    assert say("one two three", said, extra_body={"stop": ["three", "two"]}).output_text == "one "
    again = say("ab", said, max_output_tokens=6, extra_body={"ignore_eos": True})
    assert (again.status, again.usage.output_tokens) == ("incomplete", 6)


def test_bytes_of_a_character_and_log_probabilities(said):
    response = say("Grüße, 😀!", said, include=["message.output_text.logprobs"], top_logprobs=1)
    assert response.output_text == "Grüße, 😀!"
    scores = response.output[0].content[0].logprobs
    assert len(scores) == response.usage.output_tokens
    assert all(entry.logprob > -0.1 for entry in scores)


def test_the_background_and_resuming(said):
    made = say("background " * 50, said, background=True)
    with said.responses.retrieve(made.id, stream=True) as stream:
        seen = list(stream)
    assert seen[-1].type == "response.completed"
    assert said.responses.retrieve(made.id).output_text == "background " * 50
    with said.responses.retrieve(made.id, stream=True, starting_after=len(seen) - 3) as stream:
        assert [event.type for event in stream] == [event.type for event in seen[-2:]]


def test_cancelling_frees_the_engine(said):
    made = say("x", said, background=True, max_output_tokens=7000, extra_body={"ignore_eos": True})
    assert said.responses.cancel(made.id).status == "cancelled"
    assert say("still here", said).output_text == "still here"


def salted(**fields) -> dict:
    """Keep the prefix cache out: a prompt that is found there is computed in another shape, which rounds otherwise."""
    return {"extra_body": {"cache_salt": next(SALTS), **fields}}


@pytest.mark.covers("API-03")
@pytest.mark.parametrize(("temperature", "extra"), [(0.0, {}), (1.0, {"seed": 7})])
def test_the_demo_model(client, temperature, extra):
    fields = {"model": "smollm2", "temperature": temperature}
    answer = {**fields, "input": "Name three fruits.", "max_output_tokens": 16}
    whole = client.responses.create(**answer, **salted(**extra))
    streamed, last = folded(client.responses.create(**answer, **salted(**extra), stream=True))
    assert len(whole.output_text) > 10
    assert streamed == contents(whole) == contents(last.response)
    messages = [{"role": "user", "content": "Name three fruits."}]
    chat = client.chat.completions.create(**fields, messages=messages, max_tokens=16, **salted(**extra))
    assert chat.choices[0].message.content == whole.output_text


@pytest.mark.covers("API-03")
def test_seeds_decide_what_is_drawn(client):
    def drawn(seed):
        fields = {"model": "smollm2", "input": "Name three fruits.", "max_output_tokens": 12, "temperature": 1.5}
        return client.responses.create(**fields, **salted(seed=seed)).output_text

    assert drawn(3) == drawn(3) != drawn(4)
    with pytest.raises(openai.BadRequestError) as refused:
        drawn(2**63)
    assert refused.value.param == "seed"


def test_a_server_that_keeps_nothing(client):
    for stream in (False, True):
        fields = {"model": "smollm2", "input": "Hi", "max_output_tokens": 16, "store": True, "stream": stream}
        raw = client.responses.with_raw_response.create(**fields)
        assert raw.headers["x-core-response-stored"] == "false"
        made = list(raw.parse())[-1].response if stream else raw.parse()
        assert made.output_text and made.store is False
        for ask in (client.responses.retrieve, lambda name: client.responses.create(previous_response_id=name)):
            with pytest.raises(openai.NotFoundError) as gone:
                ask(made.id)
            assert "--response-store" in gone.value.message


class City(BaseModel):
    name: str
    population: int


@pytest.mark.covers("API-01")
def test_text_in_a_form(client):
    fields = {"model": "smollm2", "input": "Name a city.", "temperature": 0.0, "max_output_tokens": 80}
    answer = client.responses.parse(**fields, **salted(), text_format=City)
    assert answer.status == "completed"
    assert isinstance(answer.output_parsed, City)
    with client.responses.stream(**fields, **salted(), text_format=City) as stream:
        assert stream.get_final_response().output_parsed == answer.output_parsed
    free = client.responses.create(**fields, **salted(), text={"format": {"type": "json_object"}})
    assert free.output_text.lstrip().startswith("{")


@pytest.mark.covers("TOOL-03")
@pytest.mark.parametrize(
    "choice",
    [
        "required",
        {"type": "function", "name": "add"},
        {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "add"}]},
    ],
)
def test_a_call_that_is_demanded(said, choice):
    other = {**ADD, "name": "other"}
    fields = {"tools": [ADD, other], "tool_choice": choice, "reasoning": {"effort": "none"}}
    whole = say(CALL % 5, said, **fields)
    (call,) = whole.output
    assert (call.type, call.name, json.loads(call.arguments)) == ("function_call", "add", {"a": 5, "b": 2})
    streamed, last = folded(say(CALL % 5, said, **fields, stream=True))
    assert streamed == contents(whole) == contents(last.response)


def test_a_custom_tool(said):
    run = {"type": "custom", "name": "run", "description": "Runs code."}
    text = '<tool_call>\n{"name": "run", "arguments": {"input": "print(\\"hi\\")\\n"}}\n</tool_call>'
    whole = say(text, said, tools=[run])
    (call,) = [item for item in whole.output if item.type == "custom_tool_call"]
    assert (call.name, call.input) == ("run", 'print("hi")\n')
    events = list(say(text, said, tools=[run], stream=True))
    deltas = [event.delta for event in events if event.type == "response.custom_tool_call_input.delta"]
    assert len(deltas) > 1 and "".join(deltas) == call.input
    result = {"type": "custom_tool_call_output", "call_id": call.call_id, "output": "hi"}
    asked = [{"type": "item_reference", "id": call.id}, result]
    assert said.responses.create(model="scripted", input=asked, tools=[run]).output_text == "hi"
