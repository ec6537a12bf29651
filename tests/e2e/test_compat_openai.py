"""The official client, which checks every field of every answer, over every route that it knows.

Three things that OpenAI's own server sends are not what the client's types say: the null finish_reason of a chunk of a
plain completion that is not the last, the null log-probability of the first token of an echoed prompt, which nothing
stands before, and embeddings in base64, which the client asks for of its own accord and unpacks only after it has
looked at their type. Those are read leniently, and everything else about such answers strictly afterwards.
"""

from __future__ import annotations

import itertools
import json

import openai
import pytest
from openai.types import Completion, CreateEmbeddingResponse
from openai.types.chat import ChatCompletion
from pydantic import BaseModel, Field

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
GREEDY = {"temperature": 0, "max_tokens": 8}
ADD = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Adds two numbers.",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "required": ["a", "b"],
            "additionalProperties": False,
        },
    },
}
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": %d, "b": 2}}\n</tool_call>'
SCRIPT = f"<think>\nAdd them.\n</think>\n\nLet me see.\n{CALL % 1}\n{CALL % 3}"
# Every combination of what a chat request may ask for in addition; the strict client reads all of them.
EXTRAS = {
    "n": 2,
    "logprobs": 2,
    "stop": ["\n\n", "."],
    "seed": 5,
    "penalties": 0.5,
    "system": "Answer in one word.",
}


class Weather(BaseModel):
    """What the model has to fill in."""

    city: str = Field(max_length=12)
    degrees: int = Field(ge=-50, le=50)


@pytest.fixture(scope="module")
def client(server):
    with server.openai() as client:
        yield client


@pytest.fixture(scope="module")
def said(launch, scripted):
    """A client of a model that says the last message it is sent."""
    checkpoint, plugin = scripted
    parsers = ("--tool-parser", "hermes", "--reasoning-parser", "qwen3")
    flags = ("--threads", "1", "--num-blocks", "400", "--served-model-name", "scripted")
    with launch(checkpoint, *parsers, *flags, PYTHONPATH=plugin).wait_ready().openai() as client:
        yield client


@pytest.fixture(scope="module")
def embedder(launch):
    with launch("minilm", "--threads", "1", "--dtype", "float32").wait_ready().openai() as client:
        yield client


def lenient(client):
    return client.copy(_extra_kwargs={"_strict_response_validation": False})


def strict(kind, answer, *, instead=None):
    """Hold an answer that was read leniently against the client's types; `instead` fills what may be null."""
    fields = answer.model_dump(exclude_unset=True)
    if instead is not None:
        instead(fields)
    return kind.model_validate(fields, strict=True)


def ended(fields):
    for choice in fields["choices"]:
        choice["finish_reason"] = choice["finish_reason"] or "stop"


def scored(fields):
    for choice in fields["choices"]:
        assert choice["logprobs"]["token_logprobs"][0] is choice["logprobs"]["top_logprobs"][0] is None
        choice["logprobs"]["token_logprobs"][0], choice["logprobs"]["top_logprobs"][0] = 0.0, {}


def model_of(client):
    return client.models.list().data[0].id


def chat_fields(names):
    fields = {"messages": QUESTION, **GREEDY}
    for name in names:
        if name == "logprobs":
            fields |= {"logprobs": True, "top_logprobs": EXTRAS[name]}
        elif name == "penalties":
            fields |= {"frequency_penalty": EXTRAS[name], "presence_penalty": EXTRAS[name]}
        elif name == "system":
            fields["messages"] = [{"role": "system", "content": EXTRAS[name]}, *QUESTION]
        else:
            fields[name] = EXTRAS[name]
    return fields


# -- models ------------------------------------------------------------------------------------------------------------


@pytest.mark.covers("API-01")
def test_models(client):
    (listed,) = client.models.list().data
    assert client.models.retrieve(listed.id) == listed
    assert (listed.object, bool(listed.owned_by), listed.created > 0) == ("model", True, True)
    with pytest.raises(openai.NotFoundError) as raised:
        client.models.retrieve("gpt-9")
    assert raised.value.code == "model_not_found"


# -- chat --------------------------------------------------------------------------------------------------------------


@pytest.mark.covers("API-01")
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_chat_with_every_pair_of_wishes(client, stream):
    model = model_of(client)
    for names in itertools.chain([()], itertools.combinations(EXTRAS, 2)):
        fields = chat_fields(names)
        choices = fields.get("n", 1)
        if not stream:
            answer = client.chat.completions.create(model=model, **fields)
            assert [choice.index for choice in answer.choices] == list(range(choices))
            assert all((choice.logprobs is not None) == ("logprobs" in names) for choice in answer.choices)
            continue
        options = {"include_usage": True}
        chunks = list(client.chat.completions.create(model=model, stream=True, stream_options=options, **fields))
        ends = [choice.index for chunk in chunks for choice in chunk.choices if choice.finish_reason]
        assert sorted(ends) == list(range(choices)) and chunks[-1].usage.completion_tokens > 0
        assert any(choice.logprobs for chunk in chunks for choice in chunk.choices) == ("logprobs" in names)


@pytest.mark.covers("API-01")
def test_the_clients_own_way_of_streaming_ends_with_the_whole_answer(said):
    fields = {"model": "scripted", "messages": [{"role": "user", "content": "It is Paris."}]}
    with said.chat.completions.stream(**fields) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()
    assert {"chunk", "content.delta", "content.done"} <= kinds
    whole = said.chat.completions.create(**fields)
    assert final.choices[0].message.content == whole.choices[0].message.content == "It is Paris."


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "developer", "content": "Be brief."}, *QUESTION],
        [{"role": "user", "content": [{"type": "text", "text": "What is"}, {"type": "text", "text": " 1 + 1?"}]}],
        [*QUESTION, {"role": "assistant", "content": "Paris."}, {"role": "user", "content": "And of Spain?"}],
        [{"role": "user", "content": "Hi", "name": "ann"}],
    ],
    ids=["developer", "parts", "turns", "name"],
)
def test_every_form_of_message(client, messages):
    answer = client.chat.completions.create(model=model_of(client), messages=messages, **GREEDY)
    assert answer.choices[0].message.role == "assistant" and answer.usage.prompt_tokens > 5


@pytest.mark.covers("API-01")
@pytest.mark.parametrize("choice", ["auto", "required", {"type": "function", "function": {"name": "add"}}, "none"])
def test_tools_whole_and_streamed(said, choice):
    messages = [{"role": "user", "content": CALL % 1}]
    fields = {"model": "scripted", "messages": messages, "tools": [ADD], "tool_choice": choice}
    whole = said.chat.completions.create(**fields).choices[0]
    # The client's stream wants strict schemas, which is what it sends them with.
    with said.chat.completions.stream(**fields) as stream:
        kinds = [event.type for event in stream]
        streamed = stream.get_final_completion().choices[0]
    assert streamed.finish_reason == whole.finish_reason
    if choice == "none":
        assert not whole.message.tool_calls and not streamed.message.tool_calls
        return
    for one in (whole, streamed):
        (call,) = one.message.tool_calls
        assert (call.function.name, json.loads(call.function.arguments)) == ("add", {"a": 1, "b": 2})
    assert "tool_calls.function.arguments.delta" in kinds


@pytest.mark.covers("API-01")
def test_a_loop_of_parallel_calls_with_thinking(said):
    messages = [{"role": "user", "content": SCRIPT}]
    answer: ChatCompletion = said.chat.completions.create(model="scripted", messages=messages, tools=[ADD])
    (choice,) = answer.choices
    calls = choice.message.tool_calls
    assert choice.finish_reason == "tool_calls" and len({call.id for call in calls}) == 2
    assert [json.loads(call.function.arguments)["a"] for call in calls] == [1, 3]
    assert choice.message.content.strip() == "Let me see." and choice.message.reasoning_content.strip() == "Add them."
    results = [{"role": "tool", "tool_call_id": call.id, "content": "3"} for call in calls]
    messages += [choice.message.model_dump(exclude_none=True), *results, {"role": "user", "content": "It is 3."}]
    last = said.chat.completions.create(model="scripted", messages=messages, tools=[ADD]).choices[0]
    assert (last.message.content, last.finish_reason, last.message.tool_calls) == ("It is 3.", "stop", None)


@pytest.mark.covers("GRAM-01")
def test_answers_in_a_form(client):
    messages = [{"role": "user", "content": "The weather in Oslo?"}]
    # What is found in the prefix cache is computed in another shape, which rounds otherwise.
    fields = {"model": model_of(client), "messages": messages, "temperature": 0, "max_tokens": 60}
    salts = ({"cache_salt": f"form-{number}"} for number in itertools.count())
    answer = client.chat.completions.parse(**fields, response_format=Weather, extra_body=next(salts))
    parsed = answer.choices[0].message.parsed
    assert isinstance(parsed, Weather)
    with client.chat.completions.stream(**fields, response_format=Weather, extra_body=next(salts)) as stream:
        for _ in stream:
            continue
        assert stream.get_final_completion().choices[0].message.parsed == parsed
    free = client.chat.completions.create(**fields, response_format={"type": "json_object"}).choices[0]
    assert free.finish_reason == "length" or isinstance(json.loads(free.message.content), dict)


# -- completions -------------------------------------------------------------------------------------------------------


@pytest.mark.covers("API-01")
@pytest.mark.parametrize("prompt", ["one", ["one", "two"], [1, 2, 3], [[1, 2], [3]]], ids=str)
@pytest.mark.parametrize("fields", [{}, {"n": 2}, {"logprobs": 2}, {"stop": "."}, {"echo": True}, {"seed": 1}], ids=str)
def test_completions(client, prompt, fields):
    model, count = model_of(client), (2 if prompt and isinstance(prompt[0], (list, str)) and len(prompt) == 2 else 1)
    answer = client.completions.create(model=model, prompt=prompt, **GREEDY, **fields)
    assert [choice.index for choice in answer.choices] == list(range(count * fields.get("n", 1)))
    assert all((choice.logprobs is not None) == ("logprobs" in fields) for choice in answer.choices)
    texts, reasons = [""] * len(answer.choices), [None] * len(answer.choices)
    for chunk in lenient(client).completions.create(model=model, prompt=prompt, stream=True, **GREEDY, **fields):
        strict(Completion, chunk, instead=ended)
        for choice in chunk.choices:
            texts[choice.index] += choice.text
            reasons[choice.index] = choice.finish_reason or reasons[choice.index]
    assert reasons == [choice.finish_reason for choice in answer.choices]
    assert [bool(text) for text in texts] == [bool(choice.text) for choice in answer.choices]


@pytest.mark.covers("API-01")
def test_the_scores_of_an_echo(client):
    fields = {"prompt": "one two three", "max_tokens": 0, "echo": True, "logprobs": 1}
    answer = strict(Completion, lenient(client).completions.create(model=model_of(client), **fields), instead=scored)
    scores = answer.choices[0].logprobs
    assert all(value <= 0 for value in scores.token_logprobs) and any(scores.token_logprobs[1:])
    assert len(scores.tokens) == len(scores.token_logprobs) == len(scores.text_offset) == len(scores.top_logprobs)


# -- responses ---------------------------------------------------------------------------------------------------------


@pytest.mark.covers("API-01")
def test_responses(said):
    fields = {"model": "scripted", "input": [{"role": "user", "content": "It is Paris."}]}
    whole = said.responses.create(**fields)
    events = list(said.responses.create(**fields, stream=True))
    assert events[0].type == "response.created" and events[-1].type == "response.completed"
    assert events[-1].response.output_text == whole.output_text == "It is Paris."
    with said.responses.stream(**fields) as stream:
        for _ in stream:
            continue
        assert stream.get_final_response().output_text == whole.output_text
    cut = said.responses.create(**fields, max_output_tokens=2)
    assert (cut.status, cut.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    counted = said.responses.input_tokens.count(model="scripted", input=fields["input"])
    assert counted.input_tokens == whole.usage.input_tokens


# -- embeddings --------------------------------------------------------------------------------------------------------


@pytest.mark.covers("API-01")
def test_embeddings_in_both_forms(embedder):
    model = model_of(embedder)
    plain = embedder.embeddings.create(model=model, input=["one", "two"], encoding_format="float")
    packed = strict(CreateEmbeddingResponse, lenient(embedder).embeddings.create(model=model, input=["one", "two"]))
    assert [entry.index for entry in plain.data] == [0, 1] and plain.usage.total_tokens > 2
    for one, other in zip(plain.data, packed.data):
        assert one.embedding == pytest.approx(other.embedding, abs=1e-6)


# -- errors ------------------------------------------------------------------------------------------------------------


@pytest.mark.covers("API-04")
@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"temperature": -1}, "temperature"),
        ({"top_p": 2}, "top_p"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"n": 0}, "n"),
        ({"stop": ["a"] * 1000}, "stop"),
        ({"logit_bias": {"x": 1}}, None),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "king", "content": "x"}]}, None),
        ({"tools": [{"type": "function"}]}, None),
        ({"response_format": {"type": "xml"}}, None),
    ],
    ids=str,
)
def test_bad_requests_are_the_clients_bad_requests(client, fields, param):
    with pytest.raises(openai.BadRequestError) as raised:
        client.chat.completions.create(**{"model": model_of(client), "messages": QUESTION, **GREEDY, **fields})
    error = raised.value
    assert error.type == "invalid_request_error" and error.body["message"]
    assert param is None or error.param == param
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(
            **{"model": model_of(client), "messages": QUESTION, **GREEDY, **fields, "stream": True}
        )


@pytest.mark.covers("API-04")
def test_keys_models_and_lengths(launch, tiny, client):
    with (
        launch(str(tiny), "--threads", "1", "--num-blocks", "40", CORE_API_KEY="secret").wait_ready().openai() as other
    ):
        with pytest.raises(openai.AuthenticationError):
            other.models.list()
        assert other.copy(api_key="secret").models.list().data
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="gpt-9", messages=QUESTION)
    with pytest.raises(openai.BadRequestError) as raised:
        client.completions.create(model=model_of(client), prompt="word " * 5000)
    assert raised.value.code == "context_length_exceeded"
