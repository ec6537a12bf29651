"""Structured output on the demo model, through the official client and over the bare protocol."""

from __future__ import annotations

import json
import re
import threading

import jsonschema
import pytest
from pydantic import BaseModel

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "likes": {"type": "array", "items": {"enum": ["tea", "music"]}, "maxItems": 2},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}
ASK = [{"role": "user", "content": "Describe a person."}]
GREEDY = {"temperature": 0.0, "max_tokens": 120}
HARD = json.dumps({"type": "array", "prefixItems": [{"type": "string", "pattern": "^" + "(a|b)?" * 60 + "$"}] * 40})


@pytest.fixture(scope="module")
def client(server):
    with server.openai() as client:
        yield client


@pytest.fixture
def http(server):
    with server.http() as http:
        yield http


def model(client):
    return client.models.list().data[0].id


@pytest.mark.covers("GRAM-01")
def test_a_schema_as_openai_s_clients_send_it(client):
    form = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON, "strict": True}}
    answer = client.chat.completions.create(model=model(client), messages=ASK, response_format=form, **GREEDY)
    assert answer.choices[0].finish_reason == "stop"
    jsonschema.validate(json.loads(answer.choices[0].message.content), PERSON)


class Colour(BaseModel):
    name: str
    dark: bool


@pytest.mark.covers("GRAM-01")
def test_the_client_s_own_parsing_of_models(client):
    messages = [{"role": "user", "content": "Name a colour."}]
    answer = client.chat.completions.parse(model=model(client), messages=messages, response_format=Colour, **GREEDY)
    assert isinstance(answer.choices[0].message.parsed, Colour)


@pytest.mark.covers("GRAM-01")
def test_a_stream_joins_to_the_same_json(client):
    fields = {"model": model(client), "messages": ASK, "response_format": {"type": "json_object"}, **GREEDY}
    whole = client.chat.completions.create(**fields)
    pieces = [chunk.choices[0].delta.content or "" for chunk in client.chat.completions.create(**fields, stream=True)]
    assert "".join(pieces) == whole.choices[0].message.content
    assert isinstance(json.loads("".join(pieces)), dict)


@pytest.mark.covers("GRAM-01")
@pytest.mark.parametrize(
    ("fields", "pattern"),
    [
        ({"structured_outputs": {"regex": "[0-9]{3}-[0-9]{4}"}}, "[0-9]{3}-[0-9]{4}"),
        ({"guided_regex": "(yes|no), [a-z]{3,8}"}, "(yes|no), [a-z]{3,8}"),
        ({"structured_outputs": {"choice": ["red", "green", "blue"]}}, "red|green|blue"),
        ({"guided_choice": ["north", "south"]}, "north|south"),
        ({"structured_outputs": {"grammar": 'root ::= "<" [a-z]{2,6} ">"'}}, "<[a-z]{2,6}>"),
        ({"guided_grammar": "start: NAME\nNAME: /[A-Z][a-z]{2,6}/"}, "[A-Z][a-z]{2,6}"),
    ],
    ids=lambda value: str(value)[:36],
)
def test_patterns_choices_and_grammars(http, fields, pattern):
    body = {"prompt": "The answer is", **GREEDY, **fields}
    answer = http.post("/v1/completions", json=body).json()["choices"][0]
    assert answer["finish_reason"] == "stop" and re.fullmatch(pattern, answer["text"])


@pytest.mark.covers("GRAM-01")
@pytest.mark.parametrize("n", [1, 3])
def test_several_answers_each_in_the_schema(http, n):
    body = {"messages": ASK, "n": n, "seed": 5, "max_tokens": 150, "guided_json": PERSON, "temperature": 0.8}
    answer = http.post("/v1/chat/completions", json=body).json()
    ended = [one for one in answer["choices"] if one["finish_reason"] == "stop"]
    assert len(answer["choices"]) == n and ended
    for one in ended:
        jsonschema.validate(json.loads(one["message"]["content"]), PERSON)


@pytest.mark.covers("GRAM-01")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"structured_outputs": {"regex": "(("}}, "structured_outputs.regex"),
        ({"guided_grammar": "root ::= nowhere"}, "guided_grammar"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"not": {}}}}},
            "response_format.json_schema.schema",
        ),
    ],
)
def test_a_grammar_that_cannot_be_compiled_is_a_400(http, fields, param, stream):
    answer = http.post("/v1/chat/completions", json={"messages": ASK, "max_tokens": 4, "stream": stream, **fields})
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert error["param"] == param and "CORE-E160" in error["message"]


@pytest.mark.covers("GRAM-01")
def test_hard_grammars_keep_nobody_else_waiting(server, http):
    hard = [
        {"regex": "(x{1,999}){1,999}"},
        {"json": HARD},
        {"choice": [f"choice number {number} of many" for number in range(10_000)]},
        {"grammar": "root ::= " + " ".join(["(a b?)*"] * 40) + '\na ::= "x" | a a\nb ::= "y" | b b'},
    ]
    answers: list[int] = []

    def ask(fields):
        with server.http() as one:
            body = {"prompt": "a", "max_tokens": 3, "structured_outputs": fields}
            answers.append(one.post("/v1/completions", json=body).status_code)

    threads = [threading.Thread(target=ask, args=(fields,)) for fields in hard]
    for thread in threads:
        thread.start()
    plain = {"prompt": "Once upon a time", "max_tokens": 30, "temperature": 0.0, "ignore_eos": True}
    expected = None
    for _ in range(3):
        text = http.post("/v1/completions", json=plain).json()["choices"][0]["text"]
        expected = expected or text
        assert text == expected
    for thread in threads:
        thread.join(60)
    assert len(answers) == len(hard) and set(answers) <= {200, 400}


@pytest.mark.covers("TOOL-01", "GRAM-01")
def test_calls_are_enforced_without_a_tool_parser(client, http):
    """The demo server was started with none: the calls are plain JSON, of tools whose names and schemas it keeps to."""
    tools = [{"type": "function", "function": {"name": name, "parameters": PERSON}} for name in ("meet", "greet")]
    fields = {"model": model(client), "messages": ASK, "tools": tools, "parallel_tool_calls": False, **GREEDY}
    for choice in ("required", {"type": "function", "function": {"name": "greet"}}):
        (whole,) = client.chat.completions.create(**fields, tool_choice=choice).choices
        (call,) = whole.message.tool_calls
        jsonschema.validate(json.loads(call.function.arguments), PERSON)
        assert call.function.name in (("meet", "greet") if choice == "required" else ("greet",))
        with client.chat.completions.stream(**fields, tool_choice=choice) as stream:
            streamed = stream.get_final_completion().choices[0]
        (same,) = streamed.message.tool_calls
        assert (same.function.name, same.function.arguments) == (call.function.name, call.function.arguments)
        assert streamed.finish_reason == whole.finish_reason == "tool_calls"
    tools = [{"name": "meet", "input_schema": PERSON}]
    body = {"max_tokens": 120, "messages": ASK, "tools": tools, "tool_choice": {"type": "any"}, "temperature": 0}
    said = http.post("/v1/messages", json=body).json()
    assert said["stop_reason"] in ("tool_use", "max_tokens") and said["content"][0]["name"] == "meet"
    jsonschema.validate(said["content"][0]["input"], PERSON)
    shown = http.post("/v1/chat/completions/render", json={**fields, "tool_choice": "required"}).json()
    assert shown["sampling_params"]["grammar"]["kind"] == "structural_tag"
